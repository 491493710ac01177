package cli

import (
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/wake"
)

// progress shows how a run stands, on standard error, until stop is called.
type progress struct {
	s    *term.Streams
	look func() status // what is known but for time and rate
	draw func(status)
	pace time.Duration
	last bool // draw once more at the end

	mu       sync.Mutex
	samples  []sample
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

const (
	rateWindow = 30 * time.Second       // over which the rate is measured,
	leastApart = 100 * time.Millisecond // by samples that are so far apart
)

// startProgress shows what look returns, in the given way.
func startProgress(s *term.Streams, mode string, look func() status) *progress {
	p := &progress{s: s, look: look, wake: make(chan struct{}, 1), quit: make(chan struct{})}
	p.status() // the first sample of the rate
	_, _, tty := s.Err.Size()
	switch {
	case mode == term.ProgressNone:
		return p
	case mode == term.ProgressJSON:
		p.draw, p.pace, p.last = p.drawJSON, time.Second, true
	case mode == term.ProgressAuto && tty:
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
	p.refresh()
}

// refresh shows at once what changed.
func (p *progress) refresh() {
	wake.Up(p.wake)
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
			p.s.Err.Redraw(nil)
			if p.last {
				p.draw(p.status())
			}
			return
		case <-tick.C:
		case <-p.wake:
		}
		p.draw(p.status())
	}
}

// status is how the run stands now. It is safe for concurrent use.
func (p *progress) status() status {
	st := p.look()
	st.now = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	st.draining = p.draining
	if n := len(p.samples); n < 2 || st.now.Sub(p.samples[n-1].at) >= leastApart {
		p.samples = append(p.samples, sample{st.now, st.done + st.failed})
	}
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
	if width, height, ok := p.s.Err.Size(); ok {
		block := st.block(width)
		p.s.Err.Redraw(block[:max(1, min(len(block), height-1))])
	}
}

func (p *progress) drawPlain(st status) {
	if st.draining {
		p.s.Errorf("sluice: stopping: %s\n", st.drainLine())
		return
	}
	p.s.Errorf("sluice: %s\n", st.plain())
}

func (p *progress) drawJSON(st status) { p.s.ErrJSONLine(st.line()) }
