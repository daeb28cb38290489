#!/bin/sh
# Builds atoll-init with the machine's C compiler: native/build.sh [--sanitize] [OUTPUT]
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

flags="-std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wconversion -Werror -O2 -pthread"
if [ "$sanitize" = yes ]; then
	flags="$flags -g -fsanitize=address,undefined -fno-sanitize-recover=undefined"
else
	flags="$flags -static -fno-plt -ffunction-sections -fdata-sections -Wl,--gc-sections -s"
fi

temporary=$output.$$
trap 'rm -f "$temporary"' EXIT
# shellcheck disable=SC2086 # the flags are words
if ! "$compiler" $flags -o "$temporary" "$here"/*.c; then
	echo "Building atoll-init failed. If a header or libc.a is missing: apt-get install gcc libc6-dev" >&2
	exit 1
fi
mv -f "$temporary" "$output"
