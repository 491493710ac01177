package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Ways to show progress.
const (
	progressAuto  = "auto" // a block on a terminal, lines elsewhere
	progressPlain = "plain"
	progressJSON  = "json"
	progressNone  = "none"
)

// progress shows how a run stands, on standard error, until stop is called.
type progress struct {
	s    *streams
	look func() status // what is known but for time and rate
	draw func(status)
	pace time.Duration

	started time.Time
	samples []sample
	drawn   int // lines of the block on the terminal

	mu       sync.Mutex
	draining bool
	wake     chan struct{}
	quit     chan struct{}
	wg       sync.WaitGroup
}

// sample is how many items were done at an instant.
type sample struct {
	at   time.Time
	done int
}

// rateWindow is the time over which the rate is measured.
const rateWindow = 30 * time.Second

// startProgress shows what look returns, in the given way.
func startProgress(s *streams, mode string, look func() status) *progress {
	p := &progress{s: s, look: look, started: time.Now(), wake: make(chan struct{}, 1), quit: make(chan struct{})}
	_, _, tty := s.terminal()
	switch {
	case mode == progressNone:
		return p
	case mode == progressJSON:
		p.draw, p.pace = p.drawJSON, time.Second
	case mode == progressAuto && tty:
		p.draw, p.pace = p.drawBlock, 200*time.Millisecond
	default:
		p.draw, p.pace = p.drawPlain, 3*time.Second
	}
	p.wg.Go(p.loop)
	return p
}

// drain tells that the run takes no more work, and shows so at once.
func (p *progress) drain() {
	p.mu.Lock()
	p.draining = true
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// stop ends the showing and clears the terminal of it. It is safe to call twice.
func (p *progress) stop() {
	select {
	case <-p.quit:
	default:
		close(p.quit)
	}
	p.wg.Wait()
}

func (p *progress) loop() {
	tick := time.NewTicker(p.pace)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			fmt.Fprint(p.s.err, p.erase())
			return
		case <-tick.C:
		case <-p.wake:
		}
		p.draw(p.status())
	}
}

// status is how the run stands now.
func (p *progress) status() status {
	st := p.look()
	st.now = time.Now()
	st.elapsed = st.now.Sub(p.started)
	p.mu.Lock()
	st.draining = p.draining
	p.mu.Unlock()
	p.samples = append(p.samples, sample{st.now, st.done + st.failed})
	for len(p.samples) > 2 && st.now.Sub(p.samples[0].at) > rateWindow {
		p.samples = p.samples[1:]
	}
	first := p.samples[0]
	if d := st.now.Sub(first.at); d > 0 {
		st.perMin = float64(st.done+st.failed-first.done) / d.Minutes()
	}
	return st
}

// drawBlock redraws the status on a terminal.
func (p *progress) drawBlock(st status) {
	width, _, ok := p.s.terminal()
	if !ok {
		return
	}
	lines := st.block(width)
	text := p.erase()
	for _, line := range lines {
		text += escape(line) + "\n"
	}
	p.drawn = len(lines)
	fmt.Fprint(p.s.err, text)
}

// erase returns what takes the block off the terminal.
func (p *progress) erase() string {
	if p.drawn == 0 {
		return ""
	}
	n := p.drawn
	p.drawn = 0
	return strings.Repeat("\x1b[A", n) + "\r\x1b[J"
}

func (p *progress) drawPlain(st status) {
	if st.draining {
		p.s.errorf("sluice: stopping: %s\n", st.drainLine())
		return
	}
	p.s.errorf("sluice: %s\n", st.plain())
}

func (p *progress) drawJSON(st status) {
	b, err := json.Marshal(st.line())
	if err != nil {
		return // the fields are numbers and names: it cannot be
	}
	fmt.Fprintf(p.s.err, "%s\n", b)
}
