package cli

import (
	"sync"
	"time"
)

// stagedProgress shows how something that has stages stands, on standard error, each time that it is told.
type stagedProgress struct {
	s    *streams
	draw func(line string, document any)
	pace time.Duration

	mu     sync.Mutex
	stage  string
	next   time.Duration // nothing is shown before then, but for another stage
	silent bool
}

// newStagedProgress shows what it is told in the given way: unless it is asked for, on a terminal alone.
func newStagedProgress(s *streams, mode string) *stagedProgress {
	p := &stagedProgress{s: s, silent: true}
	_, _, tty := s.terminal()
	switch {
	case mode == progressJSON:
		p.draw, p.pace, p.silent = p.drawJSON, time.Second, false
	case mode == progressPlain:
		p.draw, p.pace, p.silent = p.drawPlain, 3*time.Second, false
	case mode == progressAuto && tty:
		p.draw, p.silent = p.drawLine, false
	}
	return p
}

// tell takes in a stage and how it stands, in a line for people and a document for programs.
func (p *stagedProgress) tell(stage string, elapsed time.Duration, line string, document any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent || stage == p.stage && elapsed < p.next {
		return
	}
	p.stage, p.next = stage, elapsed+p.pace
	p.draw(line, document)
}

// stop ends the showing and clears the terminal of it.
func (p *stagedProgress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
	p.s.err.redraw(nil)
}

func (p *stagedProgress) drawLine(line string, _ any) {
	if width, _, ok := p.s.terminal(); ok {
		p.s.err.redraw([]string{clip(line, width-1)})
	}
}

func (p *stagedProgress) drawPlain(line string, _ any) { p.s.errorf("sluice: %s\n", line) }

func (p *stagedProgress) drawJSON(_ string, document any) { p.s.tellJSONLine(document) }
