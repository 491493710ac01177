package cli_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-llm/sluice/internal/cli"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/sim"
)

// sentinelKey is the key in every test that has one. TestMain fails if any byte that the suite wrote holds it.
const sentinelKey = "sk-sentinel-" + sentinelCore

// sentinelCore is the part of it that nothing escapes.
const sentinelCore = "5d1f0c7e9b2a4836"

// transcriptDir names the variable that says where the program under test copies its output to.
const transcriptDir = "SLUICE_TEST_TRANSCRIPTS"

func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){"sluice": program, "agent": agent, "engine": engine, "origin": origin,
		"reverseproxy": reverseProxy, "heeds": heeds})
}

// program is sluice as the scripts run it.
func program() {
	if os.Getenv(hostedProgram) != "" {
		hosted()
		return
	}
	var stdout, stderr io.Writer = os.Stdout, os.Stderr
	if transcript := openTranscript(); transcript != io.Discard {
		stdout, stderr = io.MultiWriter(stdout, transcript), io.MultiWriter(stderr, transcript)
	}
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, stdout, stderr))
}

// heeds PID waits until that process listens to interrupts, which a shell has all that it starts aside ignore.
func heeds() {
	listens := regexp.MustCompile(`(?m)^SigCgt:.*[2367abef]$`)
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile("/proc/" + os.Args[1] + "/status")
		if err != nil { // the system has no such file
			time.Sleep(2 * time.Second)
			return
		}
		if listens.Match(b) {
			return
		}
	}
	os.Exit(1)
}

// sims are the imitations that scripts started, by address.
var sims sync.Map

// tests runs all tests and then looks for the key in all that they left behind.
type tests struct{ m *testing.M }

func (s tests) Run() int {
	flag.Set("test.parallel", "16")                        // they mostly wait; m.Run parses the command line, which wins
	miniredis.DumpMaxLineLen = 1 << 20                     // tests look for keys in all that an engine holds
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // so that programs do not inherit from nohup that HUP is ignored
	suite.InMemory()
	root, err := os.MkdirTemp("", "sluice-cli-test-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	if err := os.Mkdir(filepath.Join(root, "transcripts"), 0o755); err != nil {
		log.Fatal(err)
	}
	os.Setenv(transcriptDir, filepath.Join(root, "transcripts"))
	os.Setenv("SLUICE_TEST_ROOT", root)
	code := s.m.Run()
	log.SetOutput(os.Stderr) // the program discards what is logged
	leaks, files, err := findKey(root)
	switch {
	case err != nil:
		log.Print(err)
		return 1
	case len(leaks) > 0:
		log.Printf("the key stands in %s", strings.Join(leaks, ", "))
		return 1
	case testing.Verbose():
		log.Printf("the key stands in none of the %d files that the suite wrote", files)
	}
	return code
}

// findKey returns the files below root that hold the sentinel, those excepted that a script wrote it to on purpose,
// and how many it read.
func findKey(root string) (leaks []string, files int, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == "secret.env" {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrPermission) && os.Chmod(path, 0o600) == nil { // a script made it unreadable
			b, err = os.ReadFile(path)
		}
		files++
		if bytes.Contains(b, []byte(sentinelCore)) {
			leaks = append(leaks, path)
		}
		return err
	})
	return leaks, files, err
}

func TestScripts(t *testing.T) {
	t.Parallel() // it mostly waits
	// The name is of this run: a process may run the test several times.
	dir, err := os.MkdirTemp(os.Getenv("SLUICE_TEST_ROOT"), "scripts-")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		WorkdirRoot:         dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("TEST_KEY", sentinelKey)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // a program under the race detector sleeps for a second before it ends
			env.Setenv(transcriptDir, os.Getenv(transcriptDir))
			names, err := variables(strings.TrimPrefix(filepath.Base(env.WorkDir), "script-"), env.Vars)
			env.Values[variablesKey{}] = names
			return err
		},
		Condition: func(cond string) (bool, error) {
			if path, ok := strings.CutPrefix(cond, "exists:"); ok {
				_, err := os.Stat(path)
				return err == nil, nil
			}
			switch cond {
			case "root":
				return os.Getuid() == 0, nil
			case "full":
				return suite.Full, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":      cmdExits,
			"compress":   cmdCompress,
			"cut":        cmdCut,
			"sim":        cmdSim,
			"simstat":    cmdSimstat,
			"server":     cmdServer,
			"redis":      cmdRedis,
			"closedport": cmdClosedport,
			"freeport":   cmdFreeport,
			"waitlines":  cmdWaitlines,
			"waithttp":   cmdWaithttp,
			"lines":      cmdLines,
			"bigline":    cmdBigline,
			"prompts":    cmdPrompts,
			"badutf8":    cmdBadUTF8,
			"keyfile":    cmdKeyfile,
			"replace":    cmdReplace,
			"fill":       cmdFill,
			"echo":       cmdEcho,
			"asked":      cmdAsked,
			"tries":      cmdTries,
			"peak":       cmdPeak,
			"waittries":  cmdWaittries,
			"waittext":   cmdWaittext,
			"ask":        cmdAsk,
			"request":    cmdRequest,
		},
	})
}

// exits CODE[|CODE] COMMAND ARGS... runs the command, which must end with that exit code, or the other. The command sluice runs in a
// host; a last argument <FILE is its standard input then.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 2, "exits CODE[|CODE] COMMAND ARGS... [<FILE]")
	code := 0
	if args[1] == "sluice" {
		code = runHosted(ts, args[2:])
	} else if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if want := strings.Split(args[0], "|"); !slices.Contains(want, strconv.Itoa(code)) {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// sim NAME [key] [admin] [FIELD=VALUE...] serves an imitation and puts its address into the variable NAME.
func cmdSim(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 1, "sim NAME [key] [FIELD=VALUE...]")
	c := sim.Config{Latency: 5 * time.Millisecond}
	for _, arg := range args[1:] {
		field, value, _ := strings.Cut(arg, "=")
		switch field {
		case "key":
			c.Key = sentinelKey
		case "admin":
			c.AdminKey = "admin-" + sentinelKey
		case "rpm":
			c.RPM = number(ts, value)
		case "tpm":
			c.TPM = number(ts, value)
		case "concurrency":
			c.Concurrency = number(ts, value)
		case "burst":
			c.Burst = duration(ts, value)
		case "latency":
			c.Latency = duration(ts, value)
		case "spent":
			c.SpentAfter = number(ts, value)
		case "bad":
			c.Faults.BadRequest = 0.5
		case "refuses":
			c.Faults.Throttled = 0.5
			if value != "" {
				c.Faults.Throttled = float64(number(ts, value)) / 100
			}
		case "models":
			c.Models = strings.Split(value, ",")
		case "noheaders":
			c.NoHeaders = true
		default:
			if !batchField(ts, &c.Batches, field, value) {
				ts.Fatalf("unknown field %q", field)
			}
		}
	}
	server, err := sim.New(c)
	ts.Check(err)
	web := httptest.NewServer(server)
	ts.Defer(func() {
		web.CloseClientConnections()
		web.Close()
	})
	ts.Setenv(args[0], web.URL)
	sims.Store(web.URL, server)
}

// batchField sets a field of what an imitation's Batch APIs are like, and says whether there is one of that name.
func batchField(ts *testscript.TestScript, b *sim.Batches, field, value string) bool {
	switch field {
	case "batch-latency":
		b.Latency = duration(ts, value)
	case "batch-enqueued":
		b.EnqueuedTokens = number(ts, value)
	case "batch-requests":
		b.MaxRequests = number(ts, value)
	case "batch-bad":
		b.Fail = 0.3
	case "batch-expire":
		b.ExpireEvery = number(ts, value)
	case "batch-fail":
		b.FailEvery = number(ts, value)
	case "batch-cut":
		b.CutResults = number(ts, value)
	case "batch-lose":
		b.LoseResults = true
	default:
		return false
	}
	return true
}

// simstat NAME FIELD WANT compares what an imitation counted.
func cmdSimstat(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 3, "simstat NAME requests|answered|limitreads|twice|invalid|batches|batched|repeated WANT")
	v, _ := sims.Load(ts.Getenv(args[0]))
	stats := v.(*sim.Server).Stats()
	got := -1
	switch args[1] {
	case "requests":
		got = stats.Requests
	case "answered":
		got = stats.Answered
	case "limitreads":
		got = stats.LimitReads
	case "invalid":
		got = stats.Invalid
	case "batches":
		got = stats.Batches.Batches
	case "batched":
		got = stats.Batches.Answered
	case "repeated":
		got = stats.Batches.Repeated
	case "twice":
		got = 0
		for _, n := range stats.Paid {
			got += n - 1
		}
	}
	if want := number(ts, args[2]); got != want {
		ts.Fatalf("%s is %d, want %d", args[1], got, want)
	}
}

// server NAME hangs|echoes|escapes serves something that is no good and puts its address into the variable NAME: one that
// never answers, and one that quotes the request's headers in a refusal, as they are or with escapes.
func cmdServer(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 3, "server NAME hangs|echoes|escapes STATUS")
	stop := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if args[1] == "hangs" {
			select {
			case <-stop:
			case <-r.Context().Done():
			}
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(number(ts, args[2]))
		said := r.Header.Get("Authorization")
		if args[1] == "escapes" {
			key := strings.TrimPrefix(said, "Bearer ")
			said = strings.ReplaceAll(key, "-", `\u002d`) + " " + strings.ReplaceAll(key, "-", "%2d") + " " + strings.ReplaceAll(key, "s", "&#115;")
		}
		fmt.Fprintf(w, `{"error":{"message":"\u001b[2Jrejected: %s","type":"odd"}}`, said)
	}))
	ts.Defer(func() {
		close(stop)
		web.Close()
	})
	ts.Setenv(args[0], web.URL)
}

// closedport NAME puts an address on which nobody listens into the variable NAME.
func cmdClosedport(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "closedport NAME")
	ts.Setenv(args[0], "http://"+freeAddress())
}

// freeport NAME puts a free address of this host into the variable NAME.
func cmdFreeport(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "freeport NAME")
	ts.Setenv(args[0], freeAddress())
}

// lastPort is the port that a test was given last, from 22000 on: no two tests of a process get the same.
var lastPort atomic.Int64

// freeAddress returns one that nobody listens at. Its port is none of those that systems give to whoever asks for any, which are
// 32768 and above, so that no other test gets it meanwhile.
func freeAddress() string {
	lastPort.CompareAndSwap(0, rand.Int64N(10000))
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 22000+lastPort.Add(1)%10000)
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
}

// waitlines FILE N waits until the file has at least N lines.
func cmdWaitlines(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "waitlines FILE N")
	await(ts, args[0]+" to grow", func() bool {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && bytes.Count(b, []byte("\n")) >= number(ts, args[1])
	})
}

// waithttp URL waits until the address answers 200.
func cmdWaithttp(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "waithttp URL")
	await(ts, args[0]+" to answer", func() bool {
		resp, err := http.Get(args[0])
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// lines FILE N compares the number of lines of a file.
func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "lines FILE N")
	if got := strings.Count(ts.ReadFile(args[0]), "\n"); got != number(ts, args[1]) {
		ts.Fatalf("%s has %d lines, want %s", args[0], got, args[1])
	}
}

// bigline FILE MIB writes an input whose second line has so many MiB.
func cmdBigline(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "bigline FILE MIB")
	line := `{"prompt":"` + strings.Repeat("x", number(ts, args[1])<<20) + `"}`
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte("{\"prompt\":\"short\"}\n"+line+"\n"), 0o644))
}

// prompts FILE N writes an input of N different lines for the model sim-small.
func cmdPrompts(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "prompts FILE N")
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), promptLines(number(ts, args[1])), 0o644))
}

// promptLines returns n lines of the OpenAI Batch form, all different.
func promptLines(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"custom_id":"p%d","method":"POST","url":"/v1/chat/completions",`+
			`"body":{"model":"sim-small","messages":[{"role":"user","content":"Prompt number %d"}]}}`+"\n", i, i)
	}
	return b.Bytes()
}

// badutf8 FILE writes an input whose second line is no UTF-8.
func cmdBadUTF8(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "badutf8 FILE")
	text := "{\"prompt\":\"good\"}\n{\"prompt\":\"b\xe4d\"}\n"
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o644))
}

// keyfile NAME writes secret.env, where the variable NAME is the key among others.
func cmdKeyfile(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "keyfile NAME")
	text := "# keys\nOTHER_KEY=\"nothing\"\nexport " + args[0] + "='" + sentinelKey + "' # mine\n"
	ts.Check(os.WriteFile(ts.MkAbs("secret.env"), []byte(text), 0o600))
}

// replace OLD NEW FILE writes secret.env, a copy of the file with OLD replaced.
func cmdReplace(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 3, "replace OLD NEW FILE")
	text := strings.ReplaceAll(ts.ReadFile(args[2]), args[0], args[1])
	ts.Check(os.WriteFile(ts.MkAbs("secret.env"), []byte(text), 0o600))
}

// fill FILE puts the values of variables into a file, where it has ${NAME}.
func cmdFill(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "fill FILE")
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

func usage(ts *testscript.TestScript, neg, ok bool, text string) {
	if neg || !ok {
		ts.Fatalf("usage: %s", text)
	}
}

func number(ts *testscript.TestScript, text string) int {
	n, err := strconv.Atoi(text)
	ts.Check(err)
	return n
}

func duration(ts *testscript.TestScript, text string) time.Duration {
	d, err := time.ParseDuration(text)
	ts.Check(err)
	return d
}

// await polls until done reports true. After five minutes it fails the test or script, with the output of processes.
func await(t interface{ Fatalf(string, ...any) }, what string, done func() bool, output ...any) {
	for end := time.Now().Add(5 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s\n%s", what, fmt.Sprintln(output...))
		}
	}
}

// read returns the text of a file.
func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// put replaces a file as editors do.
func put(t *testing.T, path, text string) {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
