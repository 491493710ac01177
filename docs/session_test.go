//go:build full

package docs_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sentinelKey is every provider's key. Nothing that a document's commands print or write may hold it.
const sentinelKey = "sk-sentinel-5d1f0c7e9b2a4836"

// patience is how long a command may take, and ready how long a server may take to begin.
const (
	patience = 3 * time.Minute
	ready    = 2 * time.Minute
)

// session is a shell in which the commands of a document run, one after the other, in a directory of the document's own.
type session struct {
	t       *testing.T
	doc     document
	dir     string // where it works
	side    string // where its output goes
	shell   *exec.Cmd
	in      *os.File
	codes   *bufio.Reader
	n       int
	engine  string            // where an imitation of Redis listens, once there is one
	ports   map[string]string // addresses that the document names, and those that take their place
	servers map[string]bool   // those that run, by what they are
	made    map[string]string // which run made an output
}

// newSession starts one, with the files that the document finds there.
func newSession(t *testing.T, d document) *session {
	if runtime.GOOS != "linux" {
		t.Skip("commands trust a certificate of this test by SSL_CERT_FILE, which Linux knows")
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash on PATH")
	}
	s := &session{t: t, doc: d, dir: t.TempDir(), side: t.TempDir(), ports: map[string]string{}, servers: map[string]bool{}, made: map[string]string{}}
	s.furnish(own(d.name))
	s.shell = exec.Command(bash, "--norc", "-s")
	s.shell.Dir = s.dir
	s.shell.Env = s.environment()
	s.shell.SysProcAttr = inGroup()
	s.shell.WaitDelay = 5 * time.Second
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, codes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.shell.Stdin, s.shell.ExtraFiles, s.in, s.codes = stdin, []*os.File{codes}, in, bufio.NewReader(out)
	if err := s.shell.Start(); err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	codes.Close()
	t.Cleanup(s.end)
	s.do("set -o pipefail")
	return s
}

// end stops all that the document started, and looks for the key in what was written.
func (s *session) end() {
	s.in.Close()
	endGroup(s.shell.Process.Pid)
	s.shell.Wait()
	for _, dir := range []string{s.dir, s.side} {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(sentinelKey)) {
				s.t.Errorf("%s: the key stands in %s", s.doc.name, path)
			}
			return nil
		})
	}
}

// own is the directory of testdata/own that has a document's files.
func own(document string) string {
	return strings.TrimSuffix(strings.ReplaceAll(document, "/", "_"), ".md")
}

// furnish puts files into the directory: the examples of the repository, those that every document may use, and its own.
func (s *session) furnish(files string) {
	from := map[string]string{"examples": filepath.Join(root, "examples"), "": filepath.Join("testdata", "files")}
	for to, dir := range from {
		s.copy(dir, filepath.Join(s.dir, to))
	}
	files = filepath.Join("testdata", "own", files)
	if _, err := os.Stat(files); err == nil {
		s.copy(files, s.dir)
	}
}

func (s *session) copy(from, to string) {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), []byte(s.rewritten(string(b))), 0o644)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// environment is what the commands find: keys, and an internet in which every host is an imitation.
func (s *session) environment() []string {
	net := newInternet(s.t, provided)
	home := s.t.TempDir()
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + s.t.TempDir(), "TZ=UTC", "LANG=C.UTF-8", "GORACE=atexit_sleep_ms=0",
		"HTTPS_PROXY=" + net.url, "https_proxy=" + net.url, "HTTP_PROXY=" + net.url, "http_proxy=" + net.url,
		"NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost",
		"SSL_CERT_FILE=" + net.roots, "CURL_CA_BUNDLE=" + net.roots, "NODE_EXTRA_CA_CERTS=" + net.roots,
	}
	for _, name := range keys {
		env = append(env, name+"="+sentinelKey)
	}
	return env
}

// run runs commands, and compares their output with the document's.
func (s *session) run(all []exchange) {
	for _, e := range all {
		if err := s.exchange(e); err != nil {
			s.t.Errorf("%s:%d: $ %s: %v", s.doc.name, e.line, e.command, err)
		}
	}
}

var (
	outputs = regexp.MustCompile(`\bsluice run (\S+) .*-o (\S+)`)
	whither = regexp.MustCompile(` --(via|provider|base-url|redis|distribute|upstream|config)\b[ =]?[^- ]*`)
)

// setAside removes an output if the command is another run than the one that made it, by its input or by where calls go:
// documents show ways to run side by side, which a reader would not all take.
func (s *session) setAside(command string) {
	m := outputs.FindStringSubmatch(strings.ReplaceAll(command, "\\\n", ""))
	if m == nil {
		return
	}
	run := m[1] + strings.Join(whither.FindAllString(command, -1), "")
	if s.made[m[2]] != "" && s.made[m[2]] != run {
		for _, suffix := range []string{"", ".state.json", ".batches"} {
			os.RemoveAll(filepath.Join(s.dir, m[2]+suffix))
		}
	}
	s.made[m[2]] = run
}

func (s *session) exchange(e exchange) error {
	if elsewhere(s.rewritten(e.command)) != "" {
		return readable(e.command)
	}
	began := time.Now()
	defer func() {
		if took := time.Since(began); took > 3*time.Second {
			s.t.Logf("%s:%d: %v", s.doc.name, e.line, took.Round(100*time.Millisecond))
		}
	}()
	command, output := comment.ReplaceAllString(s.rewritten(e.command), ""), strings.ReplaceAll(s.rewritten(e.output), "/home/me", s.dir)
	if file, ok := strings.CutPrefix(command, "cat "); ok && !strings.ContainsAny(file, " |>") {
		if _, err := os.Stat(filepath.Join(s.dir, file)); errors.Is(err, fs.ErrNotExist) && output != "" {
			return s.write(file, output)
		}
	}
	if kind := server(command); kind != nil {
		return s.serve(*kind, command, output)
	}
	s.setAside(command)
	code, printed := s.do(command)
	if want := exitCodes(e.command); !slices.Contains(want, code) {
		return fmt.Errorf("exit code %d, want %d:\n%s", code, want, printed)
	}
	if output == "" {
		return nil
	}
	if err := differs(output, printed, exact(command)); err != nil {
		return fmt.Errorf("%w:\n%s", err, printed)
	}
	return nil
}

func (s *session) write(file, text string) error {
	path := filepath.Join(s.dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

var bound = regexp.MustCompile(`--listen \S+:(\d+)`)

// serve runs a command that stays until the document ends, or until another of its kind takes its address, and waits until it
// prints what it prints when it serves.
func (s *session) serve(kind staying, command, output string) error {
	name := kind.name
	if m := bound.FindStringSubmatch(command); m != nil {
		name += "_" + m[1]
	}
	if s.servers[name] {
		s.do("kill $" + name + "; wait $" + name + " || true")
	}
	s.servers[name] = true
	command = strings.TrimSuffix(strings.TrimRight(command, " "), "&")
	s.do(command + " &\n" + name + "=$!")
	var printed string
	for end := time.Now().Add(ready); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		printed = s.printed()
		if kind.ready.MatchString(printed) && (output == "" || differs(output, printed, false) == nil) {
			return nil
		}
		if s.source(aside, "kill -0 $"+name) != 0 {
			return fmt.Errorf("it ended:\n%s", s.printed())
		}
	}
	if output != "" && kind.ready.MatchString(printed) {
		return fmt.Errorf("%w:\n%s", differs(output, printed, false), printed)
	}
	return fmt.Errorf("it does not serve:\n%s", printed)
}

// do runs a command in the shell, and returns its exit code and what it and those that it left running print.
func (s *session) do(command string) (code int, printed string) {
	s.n++
	return s.source(s.n, command), s.printed()
}

// aside is the number of what is none of the document's commands: it leaves alone what the last one prints.
const aside = 0

// source runs the command of that number, and returns its exit code.
func (s *session) source(n int, command string) int {
	name := strconv.Itoa(n)
	script := filepath.Join(s.side, name+".sh")
	if err := os.WriteFile(script, []byte(command+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	fmt.Fprintf(s.in, "eval \"$(<%s)\" >%s 2>&1 </dev/null 3>&-; echo $? >&3\n", script, filepath.Join(s.side, name+".out"))
	timer := time.AfterFunc(patience, func() { endGroup(s.shell.Process.Pid) })
	defer timer.Stop()
	line, err := s.codes.ReadString('\n')
	if err != nil {
		s.t.Fatalf("%s: the shell ended, or it took more than %v: $ %s\n%s", s.doc.name, patience, command, s.everything())
	}
	code, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		s.t.Fatal(err)
	}
	return code
}

// printed is what the last command prints.
func (s *session) printed() string {
	b, err := os.ReadFile(filepath.Join(s.side, fmt.Sprint(s.n)+".out"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// everything is what all commands print, for who looks for the cause.
func (s *session) everything() string {
	var all strings.Builder
	for i := range s.n + 1 {
		for _, suffix := range []string{".sh", ".out"} {
			b, _ := os.ReadFile(filepath.Join(s.side, fmt.Sprint(i)+suffix))
			all.Write(b)
		}
	}
	return all.String()
}

var (
	local = regexp.MustCompile(`\b(?:127\.0\.0\.1|localhost):(\d{4,5})\b`)
	gates = regexp.MustCompile(`\bsluice serve( --?[a-z]| *&|$|\n)`)
)

// rewritten is a text with the addresses that are this document's in the test: ports that are free, and an engine.
func (s *session) rewritten(text string) string {
	for _, r := range rewrites {
		text = r.from.ReplaceAllString(text, r.to)
	}
	text = local.ReplaceAllStringFunc(text, func(address string) string { return s.port(local.FindStringSubmatch(address)[1]) })
	if gates.MatchString(text) && !strings.Contains(text, "--listen") && !strings.Contains(text, "--check") && !s.listens(text) {
		text = strings.Replace(text, "sluice serve", "sluice serve --listen "+s.port("8787")+" --metrics "+s.port("9464"), 1)
	}
	if strings.Contains(text, engineHost) {
		if s.engine == "" {
			s.engine = newEngine(s.t)
		}
		text = strings.ReplaceAll(text, engineHost, s.engine)
	}
	return text
}

var settings = regexp.MustCompile(`--config (\S+)`)

// listens reports whether the settings that a command names say where to listen.
func (s *session) listens(command string) bool {
	m := settings.FindStringSubmatch(command)
	if m == nil {
		return false
	}
	b, err := os.ReadFile(filepath.Join(s.dir, m[1]))
	return err == nil && bytes.Contains(b, []byte("listen:"))
}

// port is the address that takes the place of a port of this host.
func (s *session) port(port string) string {
	if s.ports[port] == "" && port == modelServer {
		s.ports[port] = newModels(s.t)
	}
	if s.ports[port] == "" {
		s.ports[port] = freeAddress()
	}
	return s.ports[port]
}

// freeAddress returns one that nobody listens at. Its port is none of those that systems give to whoever asks for any, which are
// 32768 and above.
func freeAddress() string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(22000))
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
}
