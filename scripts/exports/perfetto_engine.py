"""A trace processor to ask: the program that PyPI's `perfetto` downloads, or, where that cannot be downloaded, the same as
WebAssembly under node (trace_processor.mjs)."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor import TraceProcessor
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory


class Wasm:
    """Speaks to trace_processor.mjs."""

    def __init__(self, folder, trace):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        script = Path(__file__).with_name("trace_processor.mjs")
        self.process = subprocess.Popen(["node", str(script), str(folder), str(self.port)], stdout=subprocess.PIPE)
        self.process.stdout.readline()
        # Its module starts after the port is open.
        time.sleep(2)
        self.protos = ProtoFactory(PlatformDelegate())
        self.sequence = 0
        rpc = self.protos.TraceProcessorRpc
        data = Path(trace).read_bytes()
        step = 8 << 20
        for at in range(0, len(data), step):
            self._call(rpc.TPM_APPEND_TRACE_DATA, append_trace_data=data[at : at + step])
        self._call(rpc.TPM_FINALIZE_TRACE_DATA)

    def _call(self, method, append_trace_data=None, sql=None):
        stream = self.protos.TraceProcessorRpcStream()
        message = stream.msg.add()
        message.seq = self.sequence
        self.sequence += 1
        message.request = method
        if append_trace_data is not None:
            message.append_trace_data = append_trace_data
        if sql is not None:
            message.query_args.sql_query = sql
        url = f"http://127.0.0.1:{self.port}/rpc"
        with urllib.request.urlopen(url, data=stream.SerializeToString(), timeout=120) as reply:
            answer = self.protos.TraceProcessorRpcStream()
            answer.ParseFromString(reply.read())
        for message in answer.msg:
            if message.fatal_error:
                sys.exit(f"trace processor: {message.fatal_error}")
            if message.HasField("append_result") and message.append_result.error:
                sys.exit(f"trace processor: {message.append_result.error}")
        return answer.msg

    def query(self, sql):
        """Rows of an answer."""
        messages = self._call(self.protos.TraceProcessorRpc.TPM_QUERY_STREAMING, sql=sql)
        result = self.protos.QueryResult()
        for message in messages:
            result.MergeFrom(message.query_result)
        if result.error:
            sys.exit(f"trace processor: {sql}: {result.error}")
        return QueryResultIterator(list(result.column_names), result.batch)

    def close(self):
        self.process.kill()


FOLDER = os.environ.get("VRAMSCOPE_WASM")


def can_open():
    """Whether there is a trace processor; the first time it is downloaded."""
    if FOLDER:
        return True
    try:
        PlatformDelegate().get_shell_path(None)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def open_trace(trace):
    """A trace processor that holds this trace. VRAMSCOPE_WASM: the folder for trace_processor.mjs."""
    return Wasm(FOLDER, trace) if FOLDER else TraceProcessor(trace=str(trace))
