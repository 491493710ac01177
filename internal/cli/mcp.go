package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
)

// mcpOptions are the flags of the mcp command.
type mcpOptions struct {
	dir         string
	probeTokens int
}

// newMCP returns the command that serves tools to agents.
func newMCP(s *streams) *cobra.Command {
	var o mcpOptions
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve plan, find, status and explain as tools to agents, by the Model Context Protocol",
		Long: `Serve plan, find, status and explain as tools to agents, by the Model Context Protocol over standard input and output.

The tools answer with what these commands print with --json. Files are read below --dir alone. Nothing is sent to a
provider and nothing is spent, unless --probe-tokens allows it and the agent asks find to probe with a budget of tokens.
Keys come from the environment, as for every command; no tool takes, says or sends one elsewhere.

An agent's settings name this command; it ends when its standard input does, or at an interrupt. What is open then has 5 s to
be answered.`,
		Example: `  claude mcp add sluice -- sluice mcp
  sluice mcp --dir ~/runs --probe-tokens 200000`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), s) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&o.dir, "dir", ".", "directory below which files may be read")
	fs.IntVar(&o.probeTokens, "probe-tokens", 0, "most tokens that find may spend, all its calls together (0: find never probes)")
	return cmd
}

func (o *mcpOptions) run(ctx context.Context, s *streams) error {
	if o.probeTokens < 0 {
		return usageError(fmt.Errorf("--probe-tokens %d is below zero", o.probeTokens), "leave it out to have find never probe")
	}
	dir, err := filepath.Abs(o.dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return usageError(fmt.Errorf("--dir: %w", err), "name a directory that is there")
	}
	d := &toolDesk{dir: dir, probeTokens: o.probeTokens, left: o.probeTokens}
	version := buildVersion().Version
	server := mcp.NewServer(&mcp.Implementation{Name: "sluice", Title: "Sluice", Version: version}, &mcp.ServerOptions{
		Instructions: "Rate limits of LLM providers: what a workload takes (plan), what is enforced (find), how a run stands (status), what an error means (explain).",
	})
	for _, t := range deskTools() {
		d.add(server, t)
	}
	ended, end := context.WithCancel(ctx)
	defer end()
	over, cut := context.WithCancel(ctx)
	defer cut()
	signals := listen(func(os.Signal) { end() }, func(os.Signal) { cut() }, nil)
	defer signals.stop()
	err = server.Run(ctx, answering{in: newMessages(s.in, s.out), ended: ended, cut: over})
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// stayOpen is a writer that is not the transport's to close.
type stayOpen struct{ io.Writer }

// Close does nothing.
func (stayOpen) Close() error { return nil }

// toolDesk runs commands for an agent.
type toolDesk struct {
	dir         string // below which files may be read, without links
	probeTokens int    // that all calls together may spend

	mu   sync.Mutex
	left int // of those
}

// spend takes tokens for a call that is about to be made, and reports whether there are as many.
func (d *toolDesk) spend(tokens float64) (left int, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if tokens > float64(d.left) {
		return d.left, false
	}
	d.left -= int(tokens)
	return d.left, true
}

// settle gives back what a call took and did not spend. A search that made calls says what they cost.
func (d *toolDesk) settle(taken float64, a toolAnswer) {
	spent, _ := a.Document["spent"].(map[string]any)
	in, _ := spent["input_tokens"].(float64)
	out, _ := spent["output_tokens"].(float64)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left += int(taken - in - out)
}

// toolAnswer is what a tool says.
type toolAnswer struct {
	ExitCode int            `json:"exit_code" jsonschema:"0: done; 3: a run has ended and left something; 4: a cost, a deadline or a number of workers cannot be kept; 5: the budget was used up; 130: interrupted"`
	Document map[string]any `json:"document" jsonschema:"what the command prints with --json"`
	Notes    []string       `json:"notes,omitempty" jsonschema:"what it says beside, such as warnings"`
}

// call runs a command. A command that prints no document has failed.
func (d *toolDesk) call(ctx context.Context, stdin string, args ...string) (toolAnswer, error) {
	var stdout, stderr strings.Builder
	a := toolAnswer{ExitCode: Main(ctx, args, strings.NewReader(stdin), &stdout, &stderr)}
	said := strings.TrimSpace(stderr.String())
	if err := json.Unmarshal([]byte(stdout.String()), &a.Document); err != nil {
		if said == "" {
			said = fmt.Sprintf("exit code %d", a.ExitCode)
		}
		return toolAnswer{}, errors.New(strings.TrimPrefix(said, "sluice: error: "))
	}
	if said != "" {
		a.Notes = strings.Split(said, "\n")
	}
	return a, nil
}

// inside is the path of a file below the directory. One that is not there yet is inside if its directory is. What is neither a
// file nor a directory is refused: a pipe may keep its reader for ever.
func (d *toolDesk) inside(name string) (string, error) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(d.dir, path)
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		real, err = filepath.EvalSymlinks(filepath.Dir(path))
		real = filepath.Join(real, filepath.Base(path))
	}
	if err != nil {
		return "", fmt.Errorf("%s: no such file below %s", name, d.dir)
	}
	if below, err := filepath.Rel(d.dir, real); err != nil || !filepath.IsLocal(below) {
		return "", fmt.Errorf("%s is not below %s: sluice mcp --dir says where files may be read", name, d.dir)
	}
	if info, err := os.Stat(real); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no plain file", name)
	}
	return real, nil
}

// flagText is a value as a flag takes it.
func flagText(v any) string {
	if n, ok := v.(float64); ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}
