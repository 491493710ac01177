package proc

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/proc/agents"
)

const (
	preflightTime = 30 * time.Second
	maxPreflight  = 1 << 20 // bytes of each of its streams that are read
)

// probe runs the preflight when it is time to: one at a time, for all commands that are about to start.
type probe struct {
	x *Exec

	mu      sync.Mutex
	due     bool
	running *probing
}

// probing is one run of the preflight.
type probing struct {
	done    chan struct{}
	outcome sluice.Outcome
	limited bool
}

func newProbe(x *Exec) *probe { return &probe{x: x, due: x.cfg.Limits.Preflight != nil} }

// again has the next command wait for the preflight, since a limit was met. One that is on may have asked before.
func (p *probe) again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = p.x.cfg.Limits.Preflight != nil
}

// pass lets a command start, or says why not. What the preflight does not know is no reason. ctx ends when nothing more is to
// start.
func (p *probe) pass(ctx context.Context) (o sluice.Outcome, limited bool) {
	for ctx.Err() == nil {
		p.mu.Lock()
		run, mine := p.running, false
		switch {
		case run != nil:
		case !p.due:
			p.mu.Unlock()
			return o, false
		default:
			run, mine = &probing{done: make(chan struct{})}, true
			p.running, p.due = run, false
		}
		p.mu.Unlock()
		if mine {
			p.ask(ctx, run)
		}
		select {
		case <-run.done:
		case <-ctx.Done():
			return o, false
		}
		if run.limited {
			return run.outcome, true
		}
	}
	return o, false
}

// ask is one run of the preflight.
func (p *probe) ask(ctx context.Context, run *probing) {
	run.outcome, run.limited = p.run(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due, p.running = p.due || run.limited || ctx.Err() != nil, nil
	close(run.done)
}

// run asks once.
func (p *probe) run(asked context.Context) (sluice.Outcome, bool) {
	ctx, cancel := context.WithTimeout(asked, preflightTime)
	defer cancel()
	t := &try{started: time.Now()}
	var err error
	t.meaning, err = p.x.askCommand(ctx, p.x.cfg.Limits.Preflight)
	t.ended = time.Now()
	kind := t.meaning.Kind
	switch {
	case asked.Err() != nil:
	case err != nil:
		p.x.log.Warn("the preflight succeeded, but its output does not show whether a limit is reached", "error", err)
		return sluice.Outcome{}, false
	case kind.Throttle(), kind.Fatal():
		t.meaning.Source = "preflight"
		o, _ := p.x.outcome(t)
		if kind.Throttle() {
			p.x.pause(o)
			o = later()
		}
		return o, true
	case kind != sluice.OK:
		p.x.log.Warn("the preflight failed, and its output does not show whether a limit is reached", "kind", kind, "text", t.meaning.Text)
	}
	return sluice.Outcome{}, false
}

// askCommand reads the end of a command.
func (x *Exec) askCommand(ctx context.Context, args []string) (agents.Meaning, error) {
	out, errs := &head{most: maxPreflight}, &head{most: maxPreflight}
	spec := x.spec()
	spec.Args, spec.Stdout, spec.Stderr = args, out, errs
	res, err := x.cfg.Command.Run(ctx, spec)
	if ctx.Err() != nil {
		return agents.Meaning{}, errors.New("the preflight took too long")
	}
	if refused, ok := errors.AsType[*command.NotStartedError](err); ok {
		return agents.Meaning{}, refused
	}
	end := agents.End{ExitCode: res.ExitCode, Signal: res.Signal, Stdout: out.b.Bytes(), Stderr: errs.b.Bytes()}
	cli := x.cfg.Verdict.CLI
	if other := agents.Recognise(args[0]); other != nil {
		cli = other
	}
	return cli.Read(end, time.Now()), nil
}

// head keeps the beginning of what is written to it.
type head struct {
	b    bytes.Buffer
	most int
}

func (h *head) Write(p []byte) (int, error) {
	h.b.Write(p[:min(len(p), h.most-h.b.Len())])
	return len(p), nil
}
