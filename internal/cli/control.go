package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/internal/control"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// controlFlags say where a run is controlled from while it goes on.
type controlFlags struct {
	address  string
	tokenEnv string
	hosts    []string
}

const tokenVariable = "SLUICE_CONTROL_TOKEN"

func (f *controlFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.address, "control", "", "let the run be watched and tuned at a Unix socket (unix:PATH, or a path) or at HOST:PORT")
	f.registerToken(fs)
	fs.StringArrayVar(&f.hosts, "control-host", nil, "another name that HOST:PORT may be addressed by (repeatable)")
}

// registerToken adds what a client needs as well.
func (f *controlFlags) registerToken(fs *pflag.FlagSet) {
	fs.StringVar(&f.tokenEnv, "control-token-env", "", "environment variable that holds the token for HOST:PORT (absent: "+tokenVariable+")")
}

// leastToken is how long a token is at least: shorter ones can be guessed.
const leastToken = 16

// token returns what the environment has for a TCP address.
func (f *controlFlags) token(s *streams) (string, error) {
	name := cmp.Or(f.tokenEnv, tokenVariable)
	if !provider.IsVariable(name) { // it may be the token itself
		return "", usageError(errors.New("what --control-token-env names is no variable"),
			"it takes the name of a variable, such as --control-token-env MY_TOKEN, and never a token itself")
	}
	token := strings.TrimSpace(os.Getenv(name))
	s.err.secrets.hide(token)
	return token, nil
}

// open listens, if that is asked for. Nil is where it is not.
func (f *controlFlags) open(s *streams) (*controlled, error) {
	if f.address == "" {
		if f.tokenEnv != "" || len(f.hosts) > 0 {
			return nil, usageError(errors.New("--control-token-env and --control-host are for --control"), "say where: --control 127.0.0.1:8790")
		}
		return nil, nil
	}
	address, err := control.ParseAddress(f.address)
	if err != nil {
		return nil, usageError(fmt.Errorf("--control: %w", err), "give a socket or an address, such as --control unix:run.sock or --control 127.0.0.1:8790")
	}
	guard := control.Guard{}
	if address.Network == "tcp" {
		if guard, err = f.guard(s, address); err != nil {
			return nil, err
		}
	}
	server, err := control.Listen(address)
	if err != nil {
		return nil, usageError(fmt.Errorf("--control: %w", err), "give a free address of this host, or the path of a socket in a directory that you can write to")
	}
	c := &controlled{server: server}
	server.Start(control.Handler(c, guard))
	return c, nil
}

// guard says who may speak to a TCP address.
func (f *controlFlags) guard(s *streams, a control.Address) (control.Guard, error) {
	token, err := f.token(s)
	if err != nil {
		return control.Guard{}, err
	}
	const hint = "export %s=$(openssl rand -hex 16), or use a socket, which needs none: --control unix:run.sock"
	name := cmp.Or(f.tokenEnv, tokenVariable)
	switch {
	case token == "":
		return control.Guard{}, usageError(fmt.Errorf("--control %s needs a token: %s is not set", a, name), hint, name)
	case len(token) < leastToken || strings.ContainsFunc(token, notInKey):
		return control.Guard{}, usageError(fmt.Errorf("the token in %s is shorter than %d characters, or holds some that a header cannot", name, leastToken), hint, name)
	}
	if !a.Local() {
		s.errorf("sluice: warning: --control %s may be reached by others, and the token is not encrypted on its way\n", a)
	}
	return control.Guard{Token: token, Hosts: append([]string{a.Host()}, f.hosts...)}, nil
}

// controlled is a run as control sees it. Nil is one that is not controlled.
type controlled struct {
	server *control.Server
	run    atomic.Pointer[controlledRun] // nil until it begins
}

// controlledRun is a run that has begun.
type controlledRun struct {
	*batchRun
	progress *progress
	signals  *interrupts
	started  time.Time
	output   string
}

// address is where the run is controlled from; "" is nowhere.
func (c *controlled) address() string {
	if c == nil {
		return ""
	}
	return c.server.Address().String()
}

// begin says that the run goes on from now.
func (c *controlled) begin(r *batchRun, p *progress, i *interrupts) {
	if c == nil {
		return
	}
	run := &controlledRun{batchRun: r, progress: p, signals: i, started: time.Now(), output: r.o.output}
	if whole, err := filepath.Abs(r.o.output); err == nil {
		run.output = whole
	}
	c.run.Store(run)
	if r.o.verbose || c.server.Address().Network == "tcp" { // whose port may not be known yet
		r.s.errorf("sluice: controlled at %s\n", c.address())
	}
}

// Close ends the control.
func (c *controlled) Close() error {
	if c == nil {
		return nil
	}
	return c.server.Close()
}

// Status says how the run stands.
func (c *controlled) Status() (control.Status, error) {
	r := c.run.Load()
	if r == nil {
		return control.Status{}, control.ErrNotReady
	}
	st := r.progress.status()
	inFlight, waiting, throttles := st.sum()
	line := st.line()
	s := control.Status{
		At: st.now, PID: os.Getpid(), StartedAt: r.started, Input: r.o.input, Output: r.output, Phase: control.Running,
		Total: st.total, Done: st.done, Failed: st.failed, Left: st.left(), InFlight: inFlight, Waiting: waiting, Throttles: throttles,
		PerMin: line.PerMin, Bound: st.binding(), ETAms: line.ETAms, Lanes: line.Lanes,
		Used:     control.Used{InputTokens: st.usage.Input, OutputTokens: st.usage.Output, EstimatedUSD: st.estimate},
		Accounts: r.accounts.ceilings(),
	}
	if st.cost > 0 {
		s.Used.CostUSD = &st.cost
	}
	switch {
	case st.draining:
		s.Phase = control.Draining
	case st.heldFor != "":
		s.Phase = control.Paused
	}
	return s, nil
}

// SetLimits exchanges ceilings in all accounts, and says so to whoever watches.
func (c *controlled) SetLimits(limits map[limits.Dimension]int) ([]control.Change, error) {
	r := c.run.Load()
	if r == nil {
		return nil, control.ErrNotReady
	}
	if r.collector != nil {
		return nil, workersCall()
	}
	done, err := r.accounts.tell(limits)
	var changes []control.Change
	for _, one := range done {
		changes = append(changes, control.Change{Account: one.account, Before: control.Named(one.before), After: control.Named(one.after)})
		for _, line := range one.text("limits set by control", len(done) > 1) {
			r.s.errorf("sluice: %s\n", line)
		}
	}
	r.progress.refresh()
	return changes, err
}

// workersCall is returned for what would change nothing in a run whose calls workers make.
func workersCall() error {
	return &control.Error{Status: http.StatusConflict, Text: "the calls are made by workers, which are not controlled by this run: stop or start those"}
}

// Act pauses, resumes or drains the run.
func (c *controlled) Act(action control.Action) error {
	r := c.run.Load()
	if r == nil {
		return control.ErrNotReady
	}
	switch action {
	case control.Drain:
		r.signals.drain()
		return nil
	case control.Pause, control.Resume:
		if r.collector != nil {
			return workersCall()
		}
		changed, err := r.accounts.hold(action == control.Pause)
		if changed {
			r.s.errorf("sluice: %sd by control\n", string(action))
			r.progress.refresh()
		}
		return err
	}
	return fmt.Errorf("action %q is not known", action)
}

// ceilings are the limits that are told of each account now.
func (a *accounts) ceilings() []control.Ceilings {
	a.tuning.mu.Lock()
	defer a.tuning.mu.Unlock()
	all := make([]control.Ceilings, 0, len(a.tuning.tuned))
	for _, t := range a.tuning.tuned {
		all = append(all, control.Ceilings{Account: t.provider.Name, Limits: control.Named(t.limits)})
	}
	return all
}
