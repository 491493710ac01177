package cli

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/find"
)

// findProgress shows how a search stands, on standard error. It is told by the search itself.
type findProgress struct {
	s    *streams
	draw func(find.Progress)
	pace time.Duration

	mu     sync.Mutex
	phase  find.Phase
	next   time.Duration // nothing is shown before then, but for another phase
	silent bool
}

// newFindProgress shows what it is told in the given way: unless it is asked for, on a terminal alone.
func newFindProgress(s *streams, mode string) *findProgress {
	p := &findProgress{s: s, silent: true}
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

// tell takes in how the search stands.
func (p *findProgress) tell(at find.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent || at.Phase == p.phase && at.Elapsed < p.next {
		return
	}
	p.phase, p.next = at.Phase, at.Elapsed+p.pace
	p.draw(at)
}

// stop ends the showing and clears the terminal of it.
func (p *findProgress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
	p.s.err.redraw(nil)
}

func (p *findProgress) drawLine(at find.Progress) {
	if width, _, ok := p.s.terminal(); ok {
		p.s.err.redraw([]string{clip(standing(at), width-1)})
	}
}

func (p *findProgress) drawPlain(at find.Progress) { p.s.errorf("sluice: %s\n", standing(at)) }

// standing is how a search stands, in a line.
func standing(at find.Progress) string {
	text := ""
	if at.High > 0 { // first: terminals may be narrow
		text = fmt.Sprintf("%s to %s; ", group(at.Low), count(at.High, "worker"))
	}
	return text + fmt.Sprintf("%s: %s; %s", at.Phase, at.Doing, spentWords(at.Spent, at.Elapsed))
}

// findLine is how a search stands, for programs.
type findLine struct {
	Phase     find.Phase `json:"phase"`
	Doing     string     `json:"doing"`
	Spent     find.Spent `json:"spent"`
	ElapsedMS int64      `json:"elapsed_ms"`
	Low       int        `json:"low"`
	High      int        `json:"high"`
}

func (p *findProgress) drawJSON(at find.Progress) {
	b, err := json.Marshal(findLine{at.Phase, at.Doing, at.Spent, at.Elapsed.Milliseconds(), at.Low, at.High})
	if err != nil {
		return // the fields are numbers and names: it cannot be
	}
	fmt.Fprintf(p.s.err, "%s\n", b)
}
