"""Makes a sysroot of manylinux_2_28's age for this machine's GCC: sysroot.py FOLDER

Wheels must load where glibc is 2.28 and libstdc++ is GCC 8's. Usually a container with that system
is where they are built. This needs none:

- glibc: headers and link stubs of 2.28 from the PyPI package `ziglang`, which has those of every
  release.
- libstdc++: a link stub with the symbols that GCC 8's library has. What this machine's GCC needs
  beyond them is linked from its libstdc++.a and stays hidden in the library that uses it, as Red
  Hat's gcc-toolset does.

Prints, as assignments for a shell, the CXXFLAGS, CFLAGS and LDFLAGS that make GCC use it.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

GLIBC = "2.28"
# The newest symbols of GCC 8's libstdc++.so.6.
NEWEST = {"GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11)}
# What newer glibc offers to libstdc++'s headers, and 2.28 doesn't have.
NEWER_FEATURES = (
    "_GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT",
    "_GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK",
    "_GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK",
    "_GLIBCXX_HAVE_ARC4RANDOM",
)
# libstdc++.a asks newer glibc whether there is but one thread. "Perhaps not" is always right.
COMPAT_SOURCE = '__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;\n'


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{shlex.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def compiler_file(name: str) -> Path:
    """A file of this machine's GCC."""
    return Path(run("g++", f"-print-file-name={name}").strip()).resolve()


def include_folders() -> list[Path]:
    """Where this machine's GCC looks for headers of C++."""
    done = subprocess.run(
        ["g++", "-xc++", "-E", "-v", "/dev/null"], capture_output=True, text=True, check=True
    )
    listed = done.stderr.partition("search starts here:")[2].partition("End of search list")[0]
    return [Path(line.strip()) for line in listed.splitlines() if line.startswith(" ")]


def make_glibc(folder: Path) -> None:
    """include/ and lib/ of glibc, from ziglang."""
    zig = Path(sysconfig.get_path("platlib")) / "ziglang"
    headers = zig / "lib/libc/include"
    # Later ones win.
    for name in ("any-linux-any", "x86-linux-any", "generic-glibc", "x86-linux-gnu"):
        shutil.copytree(headers / name, folder / "include", dirs_exist_ok=True)
    # New in 2.32; libstdc++ asks whether the file is there.
    (folder / "include/sys/single_threaded.h").unlink()

    cache = folder / "zig"
    source = folder / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    target = f"x86_64-linux-gnu.{GLIBC}"
    flags = ("-lpthread", "-ldl", "-lm", "-lrt", "-lutil")
    directories = {"ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}
    run(zig / "zig", "cc", "-target", target, source, "-o", folder / "empty", *flags, **directories)
    lib = folder / "lib"
    stubs = next(cache.glob("o/*/libc.so.6")).parent
    for stub in [*stubs.glob("*.so.*"), next(cache.glob("o/*/libc_nonshared.a"))]:
        shutil.copy(stub, lib)
    for start in ("crt1", "Scrt1"):
        shutil.copy(next(cache.glob("o/*/crt1.o")), lib / f"{start}.o")
    for name in ("m", "pthread", "dl", "rt", "util"):
        target_name = next(lib.glob(f"lib{name}.so.*")).name
        (lib / f"lib{name}.so").symlink_to(target_name)
    (lib / "libc.so").write_text(
        "GROUP(libc.so.6 libc_nonshared.a "
        "AS_NEEDED(libld.so.2 libm.so.6 libpthread.so.0 libdl.so.2))\n"
    )


def old_symbols(library: Path) -> dict[str, tuple[str, str, int]]:
    """Name -> (version, type, bytes) of what `library` exports in versions up to NEWEST."""
    line = re.compile(r"\s*\d+: \S+\s+(\S+) (FUNC|OBJECT|TLS) +\S+ +\S+ +\d+ (\S+?)@@?(\S+)")
    found: dict[str, tuple[tuple[int, ...], tuple[str, str, int]]] = {}
    for match in map(line.match, run("readelf", "-W", "--dyn-syms", library).splitlines()):
        if match is None:
            continue
        size, kind, name, version = match.groups()
        family, _, number = version.partition("_")
        if family not in NEWEST or not re.fullmatch(r"[0-9.]+", number):
            continue
        order = tuple(map(int, number.split(".")))
        if order <= NEWEST[family] and (name not in found or found[name][0] < order):
            found[name] = (order, (version, kind, int(size, 0)))
    return {name: entry for name, (_, entry) in found.items()}


def make_libstdcxx(folder: Path) -> None:
    """lib/libstdc++.so: the stub, then the archive."""
    symbols = old_symbols(compiler_file("libstdc++.so.6"))
    if "_ZSt9terminatev" not in symbols:
        raise SystemExit("libstdc++.so.6 of this machine's GCC can't be read")
    lines: list[str] = []
    versions: dict[str, list[str]] = {}
    for name, (version, kind, size) in sorted(symbols.items()):
        versions.setdefault(version, []).append(name)
        section, gas = {
            "FUNC": (".text", "@function"),
            "OBJECT": (".data", "@object"),
            "TLS": ('.section .tbss,"awT",@nobits', "@tls_object"),
        }[kind]
        lines += [section, f".globl {name}", f".type {name},{gas}", f".size {name},{size}"]
        lines += [f"{name}:", f".zero {max(size, 1)}"]
    stub = folder / "libstdcxx.s"
    stub.write_text("\n".join(lines) + "\n")
    script = folder / "libstdcxx.map"
    script.write_text(
        "".join(f"{v} {{ {'; '.join(names)}; }};\n" for v, names in sorted(versions.items()))
    )
    lib = folder / "lib"
    run("gcc", "-shared", "-nostdlib", "-Wl,-soname,libstdc++.so.6",
        f"-Wl,--version-script={script}", stub, "-o", lib / "libstdc++.so.6")  # fmt: skip
    compat = folder / "compat.c"
    compat.write_text(COMPAT_SOURCE)
    run("gcc", "-c", "-fPIC", compat, "-o", folder / "compat.o")
    run("ar", "rcs", lib / "libcompat.a", folder / "compat.o")
    shutil.copy(compiler_file("libstdc++.a"), lib)
    (lib / "libstdc++.so").write_text("GROUP(libstdc++.so.6 libstdc++.a libcompat.a)\n")

    config = next(
        path / "bits/c++config.h"
        for path in include_folders()
        if (path / "bits/c++config.h").is_file()
    )
    text = config.read_text()
    for feature in NEWER_FEATURES:
        text = text.replace(f"#define {feature} 1", "")
    copy = folder / "c++/bits/c++config.h"
    copy.parent.mkdir(parents=True)
    copy.write_text(text)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lib").mkdir(parents=True)
    (folder / "usr").mkdir()
    (folder / "usr/include").symlink_to("../include")
    make_glibc(folder)
    make_libstdcxx(folder)
    use = f"--sysroot={folder}"
    print(f"export CXXFLAGS={shlex.quote(f'{use} -isystem {folder}/c++')}")
    print(f"export CFLAGS={shlex.quote(use)}")
    link = f"{use} -B{folder}/lib -L{folder}/lib -Wl,--allow-shlib-undefined"
    print(f"export LDFLAGS={shlex.quote(link)}")


if __name__ == "__main__":
    main()
