#!/usr/bin/env bash
# Makes what burn's CUDA backend otherwise downloads from github.com: an LLVM, out of Debian's packages.
#
#   llvm.sh FOLDER [KEEP]
#
# Afterwards `XDG_DATA_HOME=FOLDER cargo build … --features cuda` downloads nothing. Nothing is installed: packages are
# unpacked under KEEP (default FOLDER/debian). Needs an x86_64 Debian with a C and C++ compiler.
#
# Only Debian's unstable suite has this LLVM, and it moves on: keep KEEP/llvm-23-dev_*.deb, which is used if it is there.
#   MIRROR   the Debian mirror (default: the one that apt uses here)
set -euo pipefail

data=${1:?usage: llvm.sh FOLDER [KEEP]}
mkdir -p "$data"
data=$(cd "$data" && pwd)
keep=${2:-$data/debian}

# Where tracel-llvm-bundler looks (its src/config.rs), and the file by which it knows that all of it is there. Another
# version of burn may ask for another version of this.
version=23.1.0
bundle=$data/tracel/tracel-llvm-$version-4
complete=$bundle/.tracel-llvm-installed
[ ! -e "$complete" ] || exit 0

fail() { printf 'llvm.sh: %s\n' "$*" >&2; exit 1; }
for tool in cc c++ ar dpkg apt-get; do
  command -v "$tool" >/dev/null || fail "\`$tool\` is missing; on Debian: apt-get install build-essential"
done
[ "$(uname -m)" = x86_64 ] || fail "only x86_64 is handled; build with the download instead"
# shellcheck source=/dev/null
own_suite=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-bookworm}")
# shellcheck disable=SC2016 # apt's own $( )
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' | sort -u | grep '/debian/$' | tail -n 1 || true)}
mirror=${mirror:-http://deb.debian.org/debian/}

# Fetches a package without touching the system's apt: its lists and its settings are kept apart.
fetch() { # suite package
  local lists=$keep/apt-$1
  ! compgen -G "$keep/$2_*.deb" >/dev/null || return 0
  mkdir -p "$lists/partial"
  printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$1" >"$keep/$1.list"
  local options=(-q -o Dir::Etc::sourcelist="$keep/$1.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$lists"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
  [ -e "$lists/updated" ] || { apt-get "${options[@]}" update && touch "$lists/updated"; }
  (cd "$keep" && apt-get "${options[@]}" download "$2") || fail "$mirror has no $2 in $1; set MIRROR, or put its .deb in $keep"
}

fetch sid llvm-23-dev
# These two from the suite that runs here, so that they ask for no newer glibc.
fetch "$own_suite" zlib1g-dev
fetch "$own_suite" libzstd-dev

root=$keep/root
rm -rf "$root" "$bundle"
mkdir -p "$root" "$bundle"/{bin,lib,include}
for package in llvm-23-dev zlib1g-dev libzstd-dev; do
  dpkg -x "$(compgen -G "$keep/${package}_*.deb" | head -n 1)" "$root"
done
cp -r "$root/usr/include/llvm-23/llvm" "$root/usr/include/llvm-c-23/llvm-c" "$bundle/include/"

# Reading, linking, optimising and writing IR, the NVPTX backend, and ORC, which pliron-llvm mentions. In the order that
# llvm-config gives, which is the order that static linking needs.
libraries="OrcJIT WindowsDriver JITLink Option ExecutionEngine RuntimeDyld OrcTargetProcess OrcShared NVPTXCodeGen NVPTXDesc
  NVPTXInfo AsmPrinter Passes Plugins IRPrinter HipStdPar Coroutines ipo Instrumentation Vectorize SandboxIR Linker
  FrontendOpenMP FrontendDirective FrontendAtomic FrontendOffloading ObjectYAML GlobalISel SelectionDAG CodeGen Target
  ScalarOpts InstCombine ObjCARCOpts CodeGenTypes CGData BitWriter CFGuard AggressiveInstCombine TransformUtils Analysis
  ProfileData Symbolize DebugInfoBTF DebugInfoPDB DebugInfoMSF DebugInfoCodeView DebugInfoGSYM DebugInfoDWARF Object TextAPI
  MCDisassembler MCParser IRReader AsmParser MC DebugInfoDWARFLowLevel BitReader FrontendHLSL Core Remarks BitstreamReader
  BinaryFormat TargetParser Support Demangle"
flags=
for library in $libraries; do
  ln -f "$root/usr/lib/llvm-23/lib/libLLVM$library.a" "$bundle/lib/" || fail "llvm-23-dev has no libLLVM$library.a any more"
  flags+=" -lLLVM$library"
done
ln -f "$root"/usr/lib/x86_64-linux-gnu/lib{z,zstd}.a "$bundle/lib/"

# The bundler compiles functions that initialise every target which these headers name. Only NVPTX is linked, which has a
# printer of assembly, but no parser, disassembler or cost model; and no native target, because nothing is run here.
sed -i -E '/^LLVM_[A-Z_]+\([A-Za-z0-9]+\)/{/\(NVPTX\)/!d}' \
  "$bundle"/include/llvm/Config/{Targets,AsmPrinters,AsmParsers,Disassemblers,TargetMCAs,TargetExegesis}.def
sed -i -E 's@^#define (LLVM_NATIVE_[A-Z]+)\b.*@/* #undef \1 */@' "$bundle/include/llvm/Config/llvm-config.h"

# Debian unstable compiles against a glibc (2.38) that has the C23 parsers of numbers under names of their own; they differ
# in taking binary literals. C11, because a newer compiler would map these calls onto themselves.
cat >"$keep/c23.c" <<'C'
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#define OLD __attribute__((weak, visibility("hidden")))
OLD long __isoc23_strtol(const char *s, char **e, int b) { return strtol(s, e, b); }
OLD long long __isoc23_strtoll(const char *s, char **e, int b) { return strtoll(s, e, b); }
OLD unsigned long __isoc23_strtoul(const char *s, char **e, int b) { return strtoul(s, e, b); }
OLD unsigned long long __isoc23_strtoull(const char *s, char **e, int b) { return strtoull(s, e, b); }
OLD int __isoc23_sscanf(const char *s, const char *f, ...) {
  va_list a; va_start(a, f); int n = vsscanf(s, f, a); va_end(a); return n;
}
OLD int __isoc23_scanf(const char *f, ...) { va_list a; va_start(a, f); int n = vscanf(f, a); va_end(a); return n; }
C
cc -std=c11 -O2 -fPIC -c "$keep/c23.c" -o "$keep/c23.o"
ar rcs "$bundle/lib/libc23.a" "$keep/c23.o"
# -lstdc++ finds this linker script first: the binary then carries its C++ library and runs where there is an older one.
printf 'INPUT ( %s )\n' "$(c++ -print-file-name=libstdc++.a)" >"$bundle/lib/libstdc++.so"

# The bundler asks this program for everything.
defines="-D_GNU_SOURCE -D__STDC_CONSTANT_MACROS -D__STDC_FORMAT_MACROS -D__STDC_LIMIT_MACROS"
cat >"$bundle/bin/llvm-config" <<SH
#!/bin/sh
root=\$(cd "\$(dirname "\$0")/.." && pwd)
for argument; do
  case \$argument in
    --link-static) ;;
    --version) echo $version ;;
    --libdir) echo "\$root/lib" ;;
    --includedir) echo "\$root/include" ;;
    --libs | --libnames) echo "$flags -lc23 -lz -lzstd" ;;
    --system-libs) echo "-lrt -ldl -lm" ;;
    --cflags) echo "-I\$root/include $defines" ;;
    --cxxflags) echo "-I\$root/include -std=c++17 $defines -D_GLIBCXX_USE_CXX11_ABI=1 -fno-exceptions" ;;
    *) echo "llvm-config: \$argument is not handled" >&2; exit 1 ;;
  esac
done
SH
chmod +x "$bundle/bin/llvm-config"
touch "$complete"
