package provider

import (
	"strconv"
	"strings"
)

// noise reports whether a line is none of the error's words: a frame of a stack, code, a line of a diff, a commit's title,
// a heading or a box of a template, an answer of status 200.
func noise(line string, diff bool) bool {
	row := len(line) > 2 && line[0] == '|' && line[len(line)-1] == '|' && strings.Count(line, "|") > 2 // of a table
	if row || diff && strings.IndexByte("+-@ ", line[0]) >= 0 || commitTitle(line) {
		return true
	}
	low := asciiLower(clip(line, 200))
	if partly(low) || driven(low) || otherService(low) || metric(low) || assigned(low) || statuses(low) > 2 || ofProgram(line) {
		return true
	}
	switch {
	case strings.Contains(low, "docker daemon"), strings.Contains(low, " kernel: "), strings.Contains(low, "github api "), startsWithAny(low, "fail ", "pass "):
		return true
	case stackFrame(low), ofOthers(low), searchHit(low), strings.Trim(low, "^~ ") == "", strings.HasPrefix(low, "+ "),
		startsWithAny(low, "traceback (most recent", "during handling of the above", "the above exception was", "diff --git", "@@ ",
			"+++ ", "--- a/", "commit ", "merge pull request", "merge branch", "[bug]", "[feature", "msgid ", "msgstr ", "- [ ]", "- [x]", "- `",
			"* `",
			"# ", "## ", "###", "//", "/*", "* @", "def ",
			"class ", "async ", "await ", "const ", "let ", "var ", "import ", "from ", "raise ", "throw ", "return ", "except ", "catch ",
			"} catch", "if (", "elif ", "case ", "export ", "print(", "console.", "logger.", "log.", "fmt.", "func ", "function ", "public ",
			"private ",
			"assert ", "expect("):
		return true
	case strings.HasSuffix(low, "{") && strings.Contains(low, "("), strings.HasSuffix(low, ";") && strings.ContainsAny(low, "(="):
		return true
	}
	for _, v := range [...]string{`http/1.1 2`, `http/2 2`, `http/1.1" 2`, `http/2.0" 2`, `http/1.0" 2`, `http/2" 2`} {
		if i := strings.Index(low, v); i >= 0 && i+len(v)+1 < len(low) && isDigit(low[i+len(v)]) && isDigit(low[i+len(v)+1]) {
			return true
		}
	}
	return false
}

// partly reports whether a line says which part of a limit is used: below a hundred in a hundred it is a display.
func partly(low string) bool {
	before, after, ok := strings.Cut(low, "%")
	after, ok2 := strings.CutPrefix(after, " of ")
	i := len(before)
	for i > 0 && (isDigit(before[i-1]) || before[i-1] == '.') {
		i--
	}
	used, err := strconv.ParseFloat(before[i:], 64)
	return ok && ok2 && err == nil && used < 100 && (strings.Contains(after, "limit") || strings.Contains(after, "quota") || strings.Contains(after, "usage") ||
		strings.Contains(after, "allowance") || strings.Contains(after, "budget"))
}

// driven reports whether a line is of a program that drives a browser or runs tests, whose waits are for pages and tests.
func driven(low string) bool {
	for _, w := range [...]string{"navigation timeout", "page.goto", "locator.", "for selector", "for locator", "page.click", "page.wait", "page.fill",
		"for async tests", "ms for a test", "for a hook"} {
		if strings.Contains(low, w) {
			return true
		}
	}
	return false
}

// otherService reports whether a line names the address of what is no model: of a registry of packages by its name, of a
// database or a queue by its port.
func otherService(low string) bool {
	for _, host := range [...]string{"pypi.org", "pythonhosted.org", "npmjs.org", "archive.ubuntu.com", "deb.debian.org", "docker.io", "crates.io",
		"proxy.golang.org", "sheets.googleapis.com"} {
		if strings.Contains(low, host) {
			return true
		}
	}
	at := strings.IndexByte(low, ':')
	for ; at >= 0; at = next(low, at, ':') {
		n := at + 1
		for n < len(low) && isDigit(low[n]) {
			n++
		}
		switch low[at+1 : n] {
		case "5432", "3306", "6379", "27017", "9092", "5672", "11211", "1433", "1521", "2375", "2181", "9222":
			return at > 0 && isWord(low[at-1]) || at > 0 && low[at-1] == ']' || strings.HasSuffix(low[:at], "::")
		}
	}
	return false
}

// next returns where c stands behind i, or -1.
func next(s string, i int, c byte) int {
	if n := strings.IndexByte(s[i+1:], c); n >= 0 {
		return i + 1 + n
	}
	return -1
}

// metric reports whether a line is one of Prometheus's: a name, labels in braces, a number.
func metric(low string) bool {
	open, end := strings.IndexByte(low, '{'), strings.LastIndex(low, "} ")
	return open > 0 && end > open && strings.Trim(low[:open], "abcdefghijklmnopqrstuvwxyz0123456789_") == "" && strings.Trim(low[end+2:], "0123456789.e+-") == ""
}

// assigned reports whether a line gives a variable a text: rate_limit_error = "...".
func assigned(low string) bool {
	name, value, ok := strings.Cut(low, " = ")
	return ok && name != "" && !strings.HasSuffix(low, ",") && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_.") == "" && startsWithAny(value, `"`, "'", `f"`, "f'")
}

// statuses returns how many different statuses of errors stand on a line: three are a list of them.
func statuses(low string) int {
	var seen [200]bool
	n := 0
	eachWord(low, func(i, end int) bool {
		if s := statusOf(low[i:end]); s != 0 && !seen[s-400] {
			seen[s-400] = true
			n++
		}
		return true
	})
	return n
}

// ofOthers reports whether a line is the error of a program that has nothing to do with a model: "ssh: connect to host".
func ofOthers(low string) bool {
	i := 0
	for i < len(low) && (isWord(low[i]) || low[i] == '-') {
		i++
	}
	switch low[:i] {
	case "ssh", "scp", "rsync", "docker", "podman", "git", "npm", "yarn", "pnpm", "pip", "apt", "apt-get", "brew", "cargo", "make", "kubectl", "helm",
		"terraform", "psql", "pg_dump", "mysqldump", "tar", "cp", "mv", "rm", "dd", "ls", "cat", "mkdir", "ln", "find", "grep", "sed", "awk", "mount",
		"gcc", "clang",
		"ld", "cc1", "rustc", "javac", "mvn", "gradle", "ffmpeg", "systemctl", "systemd", "dpkg", "snap", "openssl", "psycopg2", "psycopg", "redis",
		"pymongo", "sqlalchemy", "mysql", "sudo", "bash", "sh", "zsh", "mcp", "wget", "elasticsearch", "kafka",
		"remote", "pytest", "selenium", "playwright", "smtplib", "imaplib", "ftplib", "paramiko", "pymysql", "asyncpg", "subprocess", "sqlite3", "django", "celery",
		"tweepy", "discord", "stripe", "octokit", "kubelet", "twilio", "slack_sdk", "telegram":
		return true
	case "fatal":
		return startsWithAny(low, "fatal: unable to access", "fatal: not a git", "fatal: could not read", "fatal: repository",
			"fatal: authentication failed for")
	case "curl":
		return startsWithAny(low, "curl: (22)")
	}
	return false
}

// searchHit reports whether a line is what a search in files prints of a comment, "src/client.ts:42:  // ...", or what a test
// says that failed: "limiter_test.go:31: got 429 Too Many Requests".
func searchHit(low string) bool {
	place, rest, ok := strings.Cut(low, ":")
	if !ok || !strings.Contains(place, ".") || strings.Contains(place, " ") {
		return false
	}
	number, rest, ok := strings.Cut(rest, ":")
	if !ok || number == "" || strings.Trim(number, "0123456789") != "" {
		return false
	}
	file := place[strings.LastIndexAny(place, `/\`)+1:]
	return startsWithAny(file, "test_") || strings.Contains(file, "_test.") || strings.Contains(file, ".test.") || strings.Contains(file, ".spec.") ||
		startsWithAny(strings.TrimSpace(rest), "//", "#", "/*", "*", "--")
}

// stackFrame reports whether a line is a frame of a stack as Node and Java print it: "at f (file.js:1:2)".
func stackFrame(low string) bool {
	if !strings.HasPrefix(low, "at ") {
		return false
	}
	line := strings.TrimRight(low, " ){}")
	colon := strings.LastIndexByte(line, ':')
	return colon > 0 && colon+1 < len(line) && strings.Trim(line[colon+1:], "0123456789") == "" ||
		startsWithAny(low, "at async ", "at new ", "at process.") || strings.Contains(low, "<anonymous>") || strings.HasSuffix(low, "(unknown)") ||
		strings.Contains(low, "(native") || strings.Contains(low, "file://")
}

// toolCall reports whether a line is the head under which an agent shows what a tool did: "Bash(npm ci)".
func toolCall(line string) bool {
	if line == "Explored" || line == "Updated Plan" {
		return true
	}
	name, rest, ok := strings.Cut(line, "(")
	if closes := strings.IndexByte(rest, ')'); closes >= 0 && strings.HasPrefix(rest[closes+1:], ":") {
		return false // of a program's object, which says what went wrong behind it
	}
	if !ok || name == "" || len(name) > 24 || !strings.HasSuffix(rest, ")") && !strings.HasSuffix(rest, "…") || isException(name) {
		return false
	}
	for i := range len(name) {
		if !isLetter(name[i]) {
			return false
		}
	}
	switch name {
	case "Error", "Exception", "error":
		return false
	}
	return name[0] >= 'A' && name[0] <= 'Z'
}

// commitTitle reports whether a line is the title of a commit: behind its hash, or in the conventional form.
func commitTitle(line string) bool {
	line = strings.TrimLeft(line, "*-• ")
	if hash, _, ok := strings.Cut(line, " "); ok && len(hash) >= 7 && len(hash) <= 40 && strings.Trim(hash, "0123456789abcdef") == "" &&
		strings.ContainsAny(hash, "abcdef") {
		return true
	}
	head, _, ok := strings.Cut(line, ":")
	if !ok || len(head) > 60 {
		return false
	}
	head = strings.TrimSuffix(asciiLower(head), "!")
	kind, _, _ := strings.Cut(head, "(")
	switch kind {
	case "feat", "fix", "chore", "docs", "refactor", "test", "tests", "perf", "ci", "build", "style", "revert", "feature", "bugfix", "hotfix", "wip":
		return true
	}
	return false
}
