# Functions that .ci/run and .ci/full share. They need bash 3.2, coreutils, awk and Go.

tmp=$(mktemp -d)
: >"$tmp/flaky"

step() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }

# gotest is the command by which tests runs all packages.
gotest() { go test "$@"; }

# tests FLAGS PACKAGE ... runs go test with the flags, which are words of one argument. A test that fails is run again by itself,
# up to twice. A package that panics, exceeds its time limit or fails in no test is run again as a whole. A test that passes on a retry
# is flaky: it is named, here and by flaky below, and fails nothing. An error of the compiler or of vet fails at once.
tests() {
	local flags=$1
	shift
	if gotest $flags "$@" </dev/null 2>&1 | tee "$tmp/tests"; then return 0; fi
	awk '
	/^ *--- FAIL: (Test|Fuzz|Example)/ { names[++count] = $3 }
	# holds reports whether a test has failed tests below it: it is not run again by itself.
	function holds(name, i) {
		for (i = 1; i <= count; i++) if (index(names[i], name "/") == 1) return 1
		return 0
	}
	/^panic: |^fatal error: |^signal: |^exit status |^\*\*\* Test killed/ { whole = 1 }
	/^(ok|\?)[ \t]/ && $2 ~ /\// { count = whole = 0 }
	/^FAIL\t/ {
		if ($3 ~ /^\[/) print "broken " $2
		else if (whole || !count) print "whole " $2
		else for (i = 1; i <= count; i++) if (!holds(names[i])) print "test " $2 " " names[i]
		found = 1; count = whole = 0
	}
	END { if (!found) print "broken" }' "$tmp/tests" >"$tmp/failed"
	local kind package name failed=
	: >"$tmp/failures"
	while read -r kind package name; do
		case $kind in
		broken) awk '!/^(ok|\?)[ \t]/' "$tmp/tests"; fail "does not compile or start: go test $flags $package" ;;
		whole | test) again "$package" "$name" "$flags" || failed=1 ;;
		esac
	done <"$tmp/failed"
	[ -z "$failed" ] || { flaky; cat "$tmp/failures"; fail "failed: go test $flags $*"; }
}

# pattern prints the value of -run that selects the test with this name alone.
pattern() {
	printf '%s\n' "$1" | awk '{ gsub(/[][\\.*+?(){}|^$]/, "\\\\&"); gsub(/\//, "$/^"); print "^" $0 "$" }'
}

# again PACKAGE TEST FLAGS runs a failed test up to twice more, or the whole package if TEST is empty or names no test.
again() {
	local package=$1 name=$2 flags=$3 run=. try
	[ -z "$name" ] || run=$(pattern "$name")
	for try in 1 2; do
		step "retry $try: $package $name"
		if go test -count=1 $flags -run "$run" "$package" >"$tmp/retry" 2>&1 </dev/null; then
			if [ "$run" != . ] && ! awk '/no tests to run/ { exit 1 }' "$tmp/retry"; then
				again "$package" '' "$flags"
				return
			fi
			note "$package ${name:-(whole package)}"
			return 0
		fi
	done
	printf 'failed three times: %s %s\n' "$package" "$name"
	cat "$tmp/retry"
	cat "$tmp/retry" >>"$tmp/failures"
	return 1
}

# note records a name as flaky.
note() {
	printf 'flaky: %s\n' "$*" | tee -a "$tmp/flaky"
}

# flaky repeats the names of all flaky tests.
flaky() {
	cat "$tmp/flaky"
}

# thrice COMMAND ... runs a command up to three times.
thrice() {
	local try
	for try in 1 2 3; do
		if "$@"; then
			[ "$try" = 1 ] || note "$*"
			return 0
		fi
	done
	return 1
}
