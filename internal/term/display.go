package term

import (
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
)

// Picture is the state of work at one instant. As JSON, it is the line of ProgressJSON.
type Picture interface {
	Block(width int) []string // for a terminal of that width
	Line() string             // for logs
}

// Display shows the state of work on standard error until Stop.
type Display struct {
	s    *Streams
	look func() Picture
	draw func(Picture) // nil: show nothing
	pace time.Duration // between two drawings
	last bool          // draw once more at the end

	refresh  chan struct{} // has room for one
	quit     chan struct{}
	stopOnce sync.Once
	wg       sync.WaitGroup
}

// lookInterval is the maximum time between two calls of look, which can measure rates.
const lookInterval = 500 * time.Millisecond

// NewDisplay starts a display of the given way. It calls look at least every 500 ms, once before NewDisplay returns and once in Stop.
func NewDisplay(s *Streams, way string, look func() Picture) *Display {
	d := &Display{s: s, look: look, refresh: make(chan struct{}, 1), quit: make(chan struct{})}
	look()
	_, _, tty := s.Err.Size()
	switch {
	case way == ProgressNone:
		d.pace = lookInterval
	case way == ProgressJSON:
		d.draw, d.pace, d.last = func(p Picture) { s.ErrJSONLine(p) }, time.Second, true
	case way == ProgressAuto && tty:
		d.draw, d.pace = d.drawBlock, 200*time.Millisecond
	default:
		d.draw, d.pace = func(p Picture) { s.Errorf("sluice: %s\n", p.Line()) }, 3*time.Second
	}
	d.wg.Go(d.loop)
	return d
}

// Refresh shows the state at once.
func (d *Display) Refresh() { wake.Up(d.refresh) }

// Stop ends the display and removes it from the terminal. It can be called twice.
func (d *Display) Stop() {
	d.stopOnce.Do(func() { close(d.quit) })
	d.wg.Wait()
}

func (d *Display) loop() {
	interval, drawn := min(d.pace, lookInterval), time.Now()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-d.quit:
			d.s.Err.Redraw(nil)
			if p := d.look(); d.last {
				d.draw(p)
			}
			return
		case <-tick.C:
		case <-d.refresh:
			drawn = time.Time{}
		}
		p := d.look()
		if d.draw != nil && time.Since(drawn) > d.pace-interval/2 {
			drawn = time.Now()
			d.draw(p)
		}
	}
}

// drawBlock redraws the block on a terminal.
func (d *Display) drawBlock(p Picture) {
	if width, height, ok := d.s.Err.Size(); ok {
		block := p.Block(width)
		d.s.Err.Redraw(block[:max(1, min(len(block), height-1))])
	}
}
