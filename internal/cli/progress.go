package cli

import (
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/wake"
)

// progress shows the status of a run on standard error until stop is called.
type progress struct {
	s     *term.Streams
	look  func() runinfo.Status // without time and rate
	draw  func(runinfo.Status)  // nil: show nothing
	pace  time.Duration
	last  bool // draw once more at the end
	meter runinfo.Meter

	wake chan struct{}
	quit chan struct{}
	wg   sync.WaitGroup
}

// measureInterval is the maximum time between two measurements.
const measureInterval = 500 * time.Millisecond

// startProgress shows what look returns, in the form of mode.
func startProgress(s *term.Streams, mode string, look func() runinfo.Status) *progress {
	p := &progress{s: s, look: look, wake: make(chan struct{}, 1), quit: make(chan struct{})}
	p.measure() // the first sample of the rate
	_, _, tty := s.Err.Size()
	switch {
	case mode == term.ProgressNone:
		p.pace = measureInterval
	case mode == term.ProgressJSON:
		p.draw, p.pace, p.last = func(st runinfo.Status) { p.s.ErrJSONLine(st) }, time.Second, true
	case mode == term.ProgressAuto && tty:
		p.draw, p.pace = p.drawBlock, 200*time.Millisecond
	default:
		p.draw, p.pace = func(st runinfo.Status) { p.s.Errorf("sluice: %s\n", progressLine(&st)) }, 3*time.Second
	}
	p.wg.Go(p.loop)
	return p
}

// drain shows at once that the run starts no more items.
func (p *progress) drain() {
	p.meter.Drain()
	p.refresh()
}

// refresh shows the status at once.
func (p *progress) refresh() {
	wake.Up(p.wake)
}

// stop ends the display and removes it from the terminal. It can be called twice.
func (p *progress) stop() {
	select {
	case <-p.quit:
	default:
		close(p.quit)
	}
	p.wg.Wait()
}

func (p *progress) loop() {
	interval, drawn := min(p.pace, measureInterval), time.Now()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			p.s.Err.Redraw(nil)
			if st := p.measure(); p.last {
				p.draw(st)
			}
			return
		case <-tick.C:
		case <-p.wake:
			drawn = time.Time{}
		}
		st := p.measure()
		if p.draw != nil && time.Since(drawn) > p.pace-interval/2 {
			drawn = time.Now()
			p.draw(st)
		}
	}
}

func (p *progress) measure() runinfo.Status { return p.meter.Measure(p.look()) }

// drawBlock redraws the status on a terminal.
func (p *progress) drawBlock(st runinfo.Status) {
	if width, height, ok := p.s.Err.Size(); ok {
		block := progressBlock(&st, width)
		p.s.Err.Redraw(block[:max(1, min(len(block), height-1))])
	}
}
