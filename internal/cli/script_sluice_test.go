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

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-llm/sluice/internal/cli"
)

// hostedProgram names the variable that makes the program under test run what hosted says.
const hostedProgram = "SLUICE_TEST_HOSTED"

// order is a command line for hosted, and where it runs.
type order struct {
	Args  []string
	Dir   string
	Stdin []byte
}

// ended is what a command line came to.
type ended struct {
	Stdout, Stderr []byte
	Code           int
}

// hosted runs sluice for the orders on standard input, one after the other. Most of what a short command costs is the start of its
// process: here the commands of a script share one.
func hosted() {
	os.Unsetenv(hostedProgram) // a command may start the program
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

// host is the process in which the commands of a script run. Another takes its place when the script changes its environment.
type host struct {
	names []string // of the variables that a script may have
	env   []string
	cmd   *exec.Cmd
	in    io.Closer
	enc   *json.Encoder
	dec   *json.Decoder
}

// hostKey is where a script has its host.
type hostKey struct{}

var setVariables = regexp.MustCompile(`(?m)^(?:\[.*\] )?env (.*)`)

// newHost returns the host of a script with those variables, and those that it sets itself.
func newHost(script string, vars []string) (*host, error) {
	text, err := os.ReadFile(filepath.Join("testdata", "script", script+".txtar"))
	if err != nil {
		return nil, err
	}
	for _, m := range setVariables.FindAllStringSubmatch(string(text), -1) {
		vars = append(vars, strings.Fields(m[1])...)
	}
	h := &host{}
	for _, v := range vars {
		name, _, _ := strings.Cut(v, "=")
		h.names = append(h.names, name)
	}
	slices.Sort(h.names)
	h.names = slices.Compact(h.names)
	return h, nil
}

// start starts the process, unless it runs with the script's environment already.
func (h *host) start(ts *testscript.TestScript) {
	var env []string
	for _, name := range h.names {
		if value := ts.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	if slices.Equal(env, h.env) {
		return
	}
	h.stop()
	h.env, h.cmd = env, exec.Command("sluice")
	h.cmd.Env, h.cmd.Stderr = append(env[:len(env):len(env)], hostedProgram+"=1"), os.Stderr
	in, err := h.cmd.StdinPipe()
	ts.Check(err)
	out, err := h.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(h.cmd.Start())
	if h.in == nil {
		ts.Defer(h.stop)
	}
	h.in, h.enc, h.dec = in, json.NewEncoder(in), json.NewDecoder(out)
}

func (h *host) stop() {
	if h.cmd != nil {
		h.in.Close()
		h.cmd.Wait()
		h.cmd = nil
	}
}

// runHosted runs sluice with args, of which the last may be <FILE for its standard input, and returns its exit code.
func runHosted(ts *testscript.TestScript, args []string) int {
	h := ts.Value(hostKey{}).(*host)
	h.start(ts)
	o := order{Args: args, Dir: ts.MkAbs(".")}
	if n := len(args) - 1; n >= 0 && strings.HasPrefix(args[n], "<") {
		o.Args, o.Stdin = args[:n], []byte(ts.ReadFile(args[n][1:]))
	}
	ts.Check(h.enc.Encode(o))
	var e ended
	ts.Check(h.dec.Decode(&e))
	ts.Stdout().Write(e.Stdout)
	ts.Stderr().Write(e.Stderr)
	return e.Code
}
