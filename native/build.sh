#!/bin/sh
# Builds atoll-init with the machine's C compiler: native/build.sh [--sanitize] [OUTPUT]
# The object that makes a bash a session (shell/) is built first and becomes part of the program, so that one file is all there is.
# The output appears by rename, so that whoever starts the program meanwhile gets the old one or the new one.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
sanitize=no
if [ "${1:-}" = --sanitize ]; then
	sanitize=yes
	shift
fi
output=${1:-$here/atoll-init}
compiler=${CC:-cc}

if ! command -v "$compiler" >/dev/null 2>&1; then
	echo "atoll-init needs a C compiler and there is no '$compiler' here. To fix it: apt-get install gcc libc6-dev" >&2
	exit 1
fi

common="-std=gnu11 -Wall -Wextra -Wshadow -Wconversion -Werror -O2"
flags="$common -D_GNU_SOURCE -pthread"
if [ "$sanitize" = yes ]; then
	flags="$flags -g -fsanitize=address,undefined -fno-sanitize-recover=undefined"
else
	flags="$flags -static -fno-plt -ffunction-sections -fdata-sections -Wl,--gc-sections -s"
fi
# Without a libc, and with nothing that would ask for one.
object_flags="$common -Wno-address -shared -fPIC -nostdlib -ffreestanding -fvisibility=hidden -fno-stack-protector -fno-tree-loop-distribute-patterns"
object_flags="$object_flags -Wl,--hash-style=both -Wl,-z,noexecstack -Wl,--build-id=none -s"

temporary=$output.$$
trap 'rm -f "$temporary" "$temporary.object"' EXIT
# shellcheck disable=SC2086 # the flags are words
if ! "$compiler" $object_flags -o "$temporary.object" "$here"/shell/*.c ||
	! "$compiler" $flags -DSESSION_OBJECT_FILE="\"$temporary.object\"" -o "$temporary" "$here"/*.c; then
	echo "Building atoll-init failed. If a header or libc.a is missing: apt-get install gcc libc6-dev" >&2
	exit 1
fi
mv -f "$temporary" "$output"
