package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-llm/sluice/internal/cli"
)

// hostedProgram names the variable that makes the program under test run what hosted says.
const hostedProgram = "SLUICE_TEST_HOSTED"

// order is a command line for hosted, and where it runs.
type order struct {
	Args  []string
	Env   []string // names and values
	Dir   string
	Stdin []byte
}

// ended is what a command line came to.
type ended struct {
	Stdout, Stderr []byte
	Code           int
}

// hosted runs sluice for the orders on standard input, one after the other. Most of what a short command costs is the start of its
// process: here commands share one.
func hosted() {
	transcript := openTranscript()
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var o order
		if err := in.Decode(&o); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		if err := os.Chdir(o.Dir); err != nil {
			log.Fatal(err)
		}
		os.Clearenv()
		for v := range slices.Chunk(o.Env, 2) {
			os.Setenv(v[0], v[1])
		}
		var stdout, stderr bytes.Buffer
		code := cli.Main(context.Background(), o.Args, bytes.NewReader(o.Stdin), io.MultiWriter(&stdout, transcript), io.MultiWriter(&stderr, transcript))
		if err := out.Encode(ended{stdout.Bytes(), stderr.Bytes(), code}); err != nil {
			log.Fatal(err)
		}
	}
}

// openTranscript returns where the program under test copies its output to.
func openTranscript() io.Writer {
	dir := os.Getenv(transcriptDir)
	if dir == "" {
		return io.Discard
	}
	f, err := os.CreateTemp(dir, "sluice-*.txt")
	if err != nil {
		log.Fatal(err)
	}
	return f
}

// hostPool has processes that run hosted, as many as there were scripts with a command at once. Their variables and directory are those
// of each order. Go reads HTTP_PROXY once: a script that sets it
// needs exec. The time zone is UTC.
var hostPool struct {
	mu   sync.Mutex
	idle []*host
}

type host struct {
	in  *json.Encoder
	out *json.Decoder
}

// takeHost returns a host that is idle, or starts one. It ends with the tests, which close its standard input.
func takeHost() (*host, error) {
	hostPool.mu.Lock()
	defer hostPool.mu.Unlock()
	if n := len(hostPool.idle) - 1; n >= 0 {
		h := hostPool.idle[n]
		hostPool.idle = hostPool.idle[:n]
		return h, nil
	}
	cmd := exec.Command("sluice")
	cmd.Env, cmd.Stderr = append(os.Environ(), hostedProgram+"=1", "GORACE=atexit_sleep_ms=0", "TZ=UTC"), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &host{json.NewEncoder(in), json.NewDecoder(out)}, cmd.Start()
}

// run runs an order.
func (h *host) run(o order) (e ended, err error) {
	if err = h.in.Encode(o); err == nil {
		err = h.out.Decode(&e)
	}
	if err == nil {
		hostPool.mu.Lock()
		hostPool.idle = append(hostPool.idle, h)
		hostPool.mu.Unlock()
	}
	return e, err
}

// variablesKey is where a script has the names of its variables.
type variablesKey struct{}

var setVariables = regexp.MustCompile(`(?m)^(?:\[.*\] )?env (.*)`)

// variables returns the names of the variables that a script begins with or sets.
func variables(script string, vars []string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join("testdata", "script", script+".txtar"))
	for _, m := range setVariables.FindAllStringSubmatch(string(text), -1) {
		vars = append(vars, strings.Fields(m[1])...)
	}
	var names []string
	for _, v := range vars {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	return names, err
}

// runHosted runs sluice with args, of which the last may be <FILE for its standard input, and returns its exit code.
func runHosted(ts *testscript.TestScript, args []string) int {
	o := order{Args: args, Dir: ts.MkAbs(".")}
	for _, name := range ts.Value(variablesKey{}).([]string) {
		if value := ts.Getenv(name); value != "" {
			o.Env = append(o.Env, name, value)
		}
	}
	if n := len(args) - 1; n >= 0 && strings.HasPrefix(args[n], "<") {
		o.Args, o.Stdin = args[:n], []byte(ts.ReadFile(args[n][1:]))
	}
	h, err := takeHost()
	ts.Check(err)
	e, err := h.run(o)
	ts.Check(err)
	ts.Stdout().Write(e.Stdout)
	ts.Stderr().Write(e.Stderr)
	return e.Code
}
