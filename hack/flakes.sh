#!/usr/bin/env bash
# flakes.sh N COMMAND...: runs a test command N times beside a load of two processes for each processor, and prints how often each
# test failed, with its first message.
set -euo pipefail
times=$1
shift
work=$(mktemp -d)
load=()
finish() {
	[ ${#load[@]} = 0 ] || kill "${load[@]}" 2>/dev/null || true
	rm -rf "$work"
}
trap finish EXIT
for _ in $(seq $(($(nproc) * 2))); do
	(while :; do :; done) &
	load+=($!)
done
failed=0
for i in $(seq "$times"); do
	if "$@" >"$work/$i" 2>&1; then echo "run $i: passed"; else echo "run $i: FAILED" && failed=$((failed + 1)); fi
done
echo "$failed of $times runs have failed"
grep -hE '^ *--- FAIL: ' "$work"/* | sed 's/ (.*//' | sort | uniq -c | sort -rn || true
grep -hE -m1 '^ +[a-z_0-9]+_test\.go:[0-9]+: ' "$work"/* | sort | uniq -c | sort -rn || true
[ "$failed" = 0 ]
