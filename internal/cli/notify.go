package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
)

// notifyFlags say whom to tell of pauses and the end.
type notifyFlags struct{ command string }

func (f *notifyFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.command, "notify", "", "run this command at the end and at long pauses, with what happened as JSON on its standard input (no shell reads it)")
}

const (
	longPause  = time.Minute      // pauses that are longer are told
	notifyTime = 30 * time.Second // that the command may take
)

// Events that are told.
const (
	notifyEnd    = "end"
	notifyPause  = "pause"
	notifyResume = "resume"
)

// notice is what the command gets on its standard input.
type notice struct {
	Event   string    `json:"event"` // end, pause or resume
	At      time.Time `json:"at"`
	Outcome string    `json:"outcome"`          // that of the summary; else paused or running
	Reason  string    `json:"reason,omitempty"` // of a pause: a kind of answer
	Lane    string    `json:"lane,omitempty"`   // that pauses; absent: all
	Until   time.Time `json:"until,omitzero"`
	PID     int       `json:"pid"`
	Input   string    `json:"input"`
	Output  string    `json:"output"`

	Total  int `json:"total"`
	Done   int `json:"done"`
	Failed int `json:"failed"`
	Left   int `json:"left"`

	Summary *summary `json:"summary,omitempty"` // at the end: as --json prints it
}

// notifier runs the command, once at a time. Of what happens meanwhile the newest is told next; the end is told always.
// Nil tells nobody.
type notifier struct {
	s       *streams
	args    []string
	private []string // variables that are not passed on
	input   string
	output  string
	look    func() status

	mu     sync.Mutex
	next   *notice              // waits for the command to end
	closed bool                 // nothing but the end is told any more
	paused map[string]time.Time // lanes whose pause was told, and until when it was said to last

	wake chan struct{}
	quit chan struct{}
	wg   sync.WaitGroup
}

// open finds the command, if there is one. Variables that hold keys are not passed on to it.
func (f *notifyFlags) open(r *batchRun) (*notifier, error) {
	if f.command == "" {
		return nil, nil
	}
	const hint = `name a program and what it is told, such as --notify 'notify-send Sluice' or --notify "sh -c 'cat >>pauses.jsonl'"`
	args, err := command.Split(f.command)
	if err == nil {
		_, err = command.Find("", args)
	}
	if err != nil {
		return nil, usageError(fmt.Errorf("--notify: %w", err), "%s", hint)
	}
	n := &notifier{s: r.s, args: args, input: r.o.input, output: r.o.output, paused: make(map[string]time.Time), wake: make(chan struct{}, 1), quit: make(chan struct{})}
	n.private = []string{r.o.account.keyEnv}
	for _, p := range r.accounts.settings.registry.All() {
		n.private = append(n.private, p.KeyEnv...)
	}
	for _, up := range r.accounts.settings.file.Upstreams { // also of those that are not used
		n.private = append(n.private, up.KeyEnv...)
	}
	return n, nil
}

// start begins to tell; look says how the run stands.
func (n *notifier) start(look func() status) {
	if n == nil {
		return
	}
	n.look = look
	n.wg.Go(n.loop)
}

func (n *notifier) loop() {
	for {
		select {
		case <-n.quit:
			return
		case <-n.wake:
		}
		n.mu.Lock()
		next := n.next
		n.next = nil
		n.mu.Unlock()
		if next != nil {
			n.tell(next)
		}
	}
}

// Observe tells of long pauses of a lane, and of their end.
func (n *notifier) Observe(e sluice.Event) {
	switch e.Type {
	case limits.EventCooldownStarted:
		if e.Until.Sub(e.At) <= longPause {
			return
		}
		n.mu.Lock()
		told := e.Until.Sub(n.paused[e.Lane]) <= longPause // the same pause, a little later
		if !told {
			n.paused[e.Lane] = e.Until
		}
		n.mu.Unlock()
		if !told {
			n.post(&notice{Event: notifyPause, At: e.At, Reason: e.Outcome.Kind.String(), Lane: e.Lane, Until: e.Until})
		}
	case limits.EventCooldownEnded:
		n.mu.Lock()
		_, told := n.paused[e.Lane]
		delete(n.paused, e.Lane)
		n.mu.Unlock()
		if told {
			n.post(&notice{Event: notifyResume, At: e.At, Lane: e.Lane})
		}
	}
}

// post leaves a notice to be told, in place of one that still waits.
func (n *notifier) post(e *notice) {
	n.mu.Lock()
	if !n.closed {
		n.next = e
	}
	n.mu.Unlock()
	wake.Up(n.wake)
}

// end tells the end, after what is being told, and waits until it is told. It is called once.
func (n *notifier) end(sum *summary) {
	if n == nil {
		return
	}
	n.mu.Lock()
	n.closed, n.next = true, nil
	n.mu.Unlock()
	close(n.quit)
	n.wg.Wait()
	n.tell(&notice{Event: notifyEnd, At: time.Now(), Outcome: sum.Outcome, Summary: sum})
}

// tell runs the command. What goes wrong with it is a warning, and nothing else.
func (n *notifier) tell(e *notice) {
	st := n.look()
	e.PID, e.Total, e.Done, e.Failed, e.Left = os.Getpid(), st.total, st.done, st.failed, st.left()
	e.Input, e.Output = n.input, n.output
	if e.Outcome == "" {
		e.Outcome = map[string]string{notifyPause: "paused", notifyResume: "running"}[e.Event]
	}
	doc, err := json.Marshal(e)
	if err != nil {
		n.s.errorf("sluice: warning: --notify: %s\n", err)
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), notifyTime, fmt.Errorf("it took longer than %s and was ended", span(notifyTime)))
	defer cancel()
	says := &tail{most: mostMessage}
	res, err := command.Run(ctx, command.Spec{
		Args:   n.args,
		Env:    append(n.environment(), "SLUICE_EVENT="+e.Event, "SLUICE_OUTCOME="+e.Outcome, "SLUICE_OUTPUT="+e.Output),
		Stdin:  strings.NewReader(n.s.err.secrets.strike(string(doc)) + "\n"),
		Stdout: says,
		Stderr: says,
	})
	if err == nil {
		return
	}
	if _, notStarted := errors.AsType[*command.NotStartedError](err); !notStarted && ctx.Err() == nil {
		err = fmt.Errorf("exit code %d", res.ExitCode)
		if res.Signal != "" {
			err = errors.New(res.Signal)
		}
	}
	text := err.Error()
	if said := says.text(); said != "" {
		text += ": " + said
	}
	n.s.errorf("sluice: warning: --notify (%s): %s\n", e.Event, text)
}

// environment is ours without keys: neither the variables that are there for them, nor any that has one for a value.
func (n *notifier) environment() []string {
	secrets := n.s.err.secrets.all()
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, value, _ := strings.Cut(variable, "=")
		return slices.ContainsFunc(n.private, func(private string) bool { return strings.EqualFold(private, name) }) ||
			slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(value, secret) })
	})
}

// tail keeps the end of what is written. It is safe for concurrent use.
type tail struct {
	most int
	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b[max(0, len(b)-t.most):]...)
	t.kept = t.kept[max(0, len(t.kept)-t.most):]
	return len(b), nil
}

// text is the last line that is not empty.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(t.kept), []byte("\n"))
	return strings.TrimSpace(string(lines[len(lines)-1]))
}
