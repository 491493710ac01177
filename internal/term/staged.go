package term

import (
	"sync"
	"time"
)

// Ways to show progress.
const (
	ProgressAuto  = "auto"  // a block on a terminal, lines elsewhere
	ProgressPlain = "plain" // lines
	ProgressJSON  = "json"  // JSON lines
	ProgressNone  = "none"
)

// Staged shows the progress of work in stages on standard error.
type Staged struct {
	s    *Streams
	draw func(line string, document any)
	pace time.Duration

	mu     sync.Mutex
	stage  string
	next   time.Duration // until then, only another stage is shown
	silent bool
}

// NewStaged returns a progress display of the given way. Without a terminal, ProgressAuto shows nothing.
func NewStaged(s *Streams, way string) *Staged {
	p := &Staged{s: s, silent: true}
	_, _, tty := s.Err.Size()
	switch {
	case way == ProgressJSON:
		p.draw, p.pace, p.silent = func(_ string, document any) { s.ErrJSONLine(document) }, time.Second, false
	case way == ProgressPlain:
		p.draw, p.pace, p.silent = func(line string, _ any) { s.Errorf("sluice: %s\n", line) }, 3*time.Second, false
	case way == ProgressAuto && tty:
		p.draw, p.pace, p.silent = p.drawLine, 50*time.Millisecond, false
	}
	return p
}

// Show shows the state of a stage: a line for people, or a document for programs.
func (p *Staged) Show(stage string, elapsed time.Duration, line string, document any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent || stage == p.stage && elapsed < p.next {
		return
	}
	p.stage, p.next = stage, elapsed+p.pace
	p.draw(line, document)
}

// Stop ends the display and clears the terminal.
func (p *Staged) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
	p.s.Err.Redraw(nil)
}

func (p *Staged) drawLine(line string, _ any) {
	if width, _, ok := p.s.Err.Size(); ok {
		p.s.Err.Redraw([]string{Clip(line, width-1)})
	}
}
