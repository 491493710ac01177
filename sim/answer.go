package sim

import (
	"context"
	"net/http"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
)

// answer lets an admitted call go as planned.
func (s *Server) answer(ctx context.Context, c *call, w http.ResponseWriter) {
	if !s.enter(ctx) {
		s.leave(c, abandoned, false, 0)
		return
	}
	switch c.plan.fault {
	case faultHang:
		<-ctx.Done()
		s.leave(c, failed, true, 0)
		return
	case faultOverloaded:
		if wake.In(ctx, s.config.RefusalLatency, nil) != nil {
			s.leave(c, abandoned, true, 0)
			return
		}
		s.fail(c, reasonOverloaded, w)
		return
	case noFault, faultCut:
		if !c.stream {
			s.whole(ctx, c, w)
			return
		}
	}
	if _, ok := s.processor.serve(ctx, c.plan.latency); !ok {
		s.leave(c, abandoned, true, 0)
		return
	}
	switch c.plan.fault {
	case faultServerError:
		s.fail(c, reasonServerError, w)
	case faultReset:
		s.leave(c, failed, true, 0)
		reset(w)
	default:
		s.stream(ctx, c, w)
	}
}

func (s *Server) fail(c *call, why reason, w http.ResponseWriter) {
	s.leave(c, failed, true, 0)
	s.refuse(c, &refusal{reason: why}, w)
}

// whole sends an answer at once. The call is over for the provider when its
// last byte is handed to the network, so that the client, who learns of the
// end by that byte, finds the place free.
func (s *Server) whole(ctx context.Context, c *call, w http.ResponseWriter) {
	if had, ok := s.processor.serve(ctx, c.plan.whole()); !ok {
		s.leave(c, abandoned, true, c.plan.producedIn(had))
		return
	}
	h := s.headers(c, w)
	h.set("Content-Type", "application/json")
	body := []byte(c.dialect.answer(c))
	if c.plan.fault == faultCut {
		s.leave(c, failed, true, c.plan.output)
		tear(w, body)
	}
	s.leave(c, answered, true, c.plan.output)
	send(w, http.StatusOK, body)
}

// producedIn is how many tokens there are after d of service.
func (p *plan) producedIn(d time.Duration) int {
	if d < p.latency {
		return 0
	}
	if p.perToken <= 0 {
		return p.output
	}
	return min(p.output, int((d-p.latency)/p.perToken))
}

// maxParts is the number of events that carry the text of one choice at most.
const maxParts = 64

// stream sends an answer part by part; the time to the first byte is over.
func (s *Server) stream(ctx context.Context, c *call, w http.ResponseWriter) {
	h := s.headers(c, w)
	h.set("Content-Type", c.dialect.streamType(c))
	write(w, c.dialect.open(c))
	size := max(1, (c.perChoice+maxParts-1)/maxParts)
	tear := -1
	if c.plan.fault == faultCut {
		tear = c.plan.output / 2
	}
	for choice := range c.choices {
		for from := 0; from < c.perChoice; from += size {
			to := min(from+size, c.perChoice)
			if tear >= 0 && c.produced >= tear {
				s.leave(c, failed, true, 0)
				panic(http.ErrAbortHandler)
			}
			if _, ok := s.processor.serve(ctx, time.Duration(to-from)*c.plan.perToken); !ok {
				s.leave(c, abandoned, true, 0)
				return
			}
			c.produced += to - from
			write(w, c.dialect.delta(c, choice, c.text(from, to)))
			s.produced(to - from)
		}
	}
	s.leave(c, answered, true, 0)
	write(w, c.dialect.close(c))
}
