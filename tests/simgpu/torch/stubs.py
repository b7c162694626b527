"""Makes stand-ins for the CUDA libraries that a PyTorch wheel needs and the simulated GPU does not have.

    stubs.py TORCH OUT      TORCH: the folder of the package; OUT: where the libraries go

What is missing is read from the wheel's own libraries: the names they need that neither the wheel nor the system has, and the
functions they ask of them. Each becomes a function that answers 0, which is success in all of these libraries; what needs
a better answer is in hand.c. SIMGPU_STUB_LOG=file makes each say its name there when it is first called.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SIMULATED = re.compile(r"libcuda\.so|libcudart\.so|ld-linux")
# Functions of these have no version that names their library.
PREFIXES = {"nccl": "libnccl.so", "nvshmem": "libnvshmem_host.so", "cuFile": "libcufile.so", "cusparseLt": "libcusparseLt.so"}
# Those that compute something on the device: they launch a kernel.
COMPUTES = re.compile(r"cublas(?!Lt|Set|Get|Create|Destroy)|cusolverDn(?!.*_bufferSize|Set|Get|Create|Destroy)")


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def libraries(folder):
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            if ".so" in name and not os.path.islink(path) and open(path, "rb").read(4) == b"\x7fELF":
                yield path


def missing(paths):
    """The names of libraries that nobody has."""
    needed = {n for p in paths for n in re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", p))}
    there = {os.path.basename(p) for p in paths} | set(re.findall(r"^\s+(\S+) \(", output("/sbin/ldconfig", "-p"), re.M))
    return sorted(n for n in needed - there if not SIMULATED.match(n))


def wanted(paths, names):
    """By library: the functions asked of it, and the name of their version."""
    found = {name: (set(), set()) for name in names}
    for path in paths:
        for line in output("nm", "-D", "--undefined-only", path).splitlines():
            symbol, _, version = line.split()[-1].partition("@")
            version = version.lstrip("@")
            start = next((p for p in sorted(PREFIXES, key=len, reverse=True) if symbol.startswith(p)), None)
            name = version if version in found else next((n for n in names if start and n.startswith(PREFIXES[start])), None)
            if name:
                found[name][0].add(symbol)
                found[name][1].add(version)
    return found


def build(name, symbols, versions, out):
    base = os.path.join(out, name)
    stem = re.match(r"lib(\w+)", name)[1]
    flags = ["-O1", "-g", "-fPIC", "-w", f"-DLIB_{stem}"]
    output("cc", *flags, "-c", os.path.join(HERE, "hand.c"), "-o", base + ".hand.o")
    by_hand = {line.split()[-1] for line in output("nm", "--defined-only", "-g", base + ".hand.o").splitlines()}
    with open(base + ".c", "w") as f:
        f.write('#include "hand.h"\n')
        f.writelines(f"{'LAUNCH' if COMPUTES.match(s) else 'STUB'}({s})\n" for s in sorted(symbols - by_hand))
    version = next(iter(versions - {""}), None)
    with open(base + ".map", "w") as f:
        f.write((version or "") + " { global: *; };\n")
    # The rename, because programs may run that have the old one mapped.
    output("cc", *flags, "-I", HERE, "-shared", f"-Wl,-soname,{name}", f"-Wl,--version-script={base}.map", base + ".c", base + ".hand.o", "-o", base + ".new")
    os.rename(base + ".new", base)


def main():
    torch, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    paths = sorted(libraries(torch))
    for name, (symbols, versions) in wanted(paths, missing(paths)).items():
        build(name, symbols, versions, out)
        print(f"{name}: {len(symbols)} functions")


main()
