package find

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/fifo"
)

// volley is a burst of calls, with lone ones sent while all that were accepted are surely open.
type volley struct {
	replies []reply
	lone    []reply // those lone calls that met every accepted call of the burst still open
}

// volley makes n calls at once. If some are refused, lone calls follow while the others are open: a cap refuses all of
// them, a bucket lets some in.
func (s *search) volley(ctx context.Context, sh *shape, n int) (volley, error) {
	s.p.warm(ctx, n)
	began := time.Now()
	var (
		v       = volley{replies: make([]reply, n)}
		errs    = make([]error, n)
		refused = make(chan struct{}, n)
		wg      sync.WaitGroup
	)
	for i := range n {
		wg.Go(func() {
			v.replies[i], errs[i] = s.p.probe(ctx, sh)
			if v.replies[i].refused() {
				refused <- struct{}{}
			}
		})
	}
	lone, err := s.lone(ctx, began, refused)
	wg.Wait()
	if err := cmp.Or(append(errs, err)...); err != nil {
		return v, err
	}
	if err := failing(v.replies); err != nil {
		return v, err
	}
	s.learn(sh, v.replies...)
	last := v.firstEnd()
	for _, r := range lone {
		if r.sent.Add(s.refusal).Before(last) && (r.accepted() || r.refused()) {
			v.lone = append(v.lone, r)
		}
	}
	return v, nil
}

// loneAt are the instants of lone calls, as shares of the least time that a tiny call takes.
var loneAt = [...]float64{0.35, 0.6, 0.85}

// lone makes lone calls beside an open burst, if one of the burst is refused.
func (s *search) lone(ctx context.Context, began time.Time, refused <-chan struct{}) (lone []reply, err error) {
	for _, share := range loneAt {
		at := began.Add(time.Duration(share * float64(s.least)))
		if err := sleep(ctx, time.Until(at)); err != nil {
			return lone, nil // the burst says why
		}
		if len(refused) == 0 {
			continue
		}
		r, err := s.p.once(ctx, &s.tiny)
		if err != nil {
			return lone, err
		}
		lone = append(lone, r)
	}
	return lone, nil
}

// firstEnd is when the first of the accepted calls was answered.
func (v *volley) firstEnd() (t time.Time) {
	for i := range v.replies {
		if r := &v.replies[i]; r.accepted() && (t.IsZero() || r.done.Before(t)) {
			t = r.done
		}
	}
	return t
}

func (v *volley) accepted() (n int) { return count(v.replies, (*reply).accepted) }
func (v *volley) refused() (n int)  { return count(v.replies, (*reply).refused) }

// admitted is how many of the burst were not refused: what failed later had a place, too.
func (v *volley) admitted() int { return len(v.replies) - v.refused() }

func count(replies []reply, is func(*reply) bool) (n int) {
	for i := range replies {
		if is(&replies[i]) {
			n++
		}
	}
	return n
}

// flights are the answered calls, for what their latencies tell.
func (v *volley) flights() (f []fifo.Flight) {
	if len(v.replies) == 0 {
		return nil
	}
	began := v.replies[0].sent
	for i := range v.replies {
		if v.replies[i].sent.Before(began) {
			began = v.replies[i].sent
		}
	}
	for i := range v.replies {
		if r := &v.replies[i]; r.accepted() {
			f = append(f, fifo.Flight{Sent: r.sent.Sub(began), Took: r.took()})
		}
	}
	return f
}

// overlap is the most accepted calls that were open at the same time, as far as the client can tell.
func overlap(replies []reply) int {
	type edge struct {
		at time.Time
		by int
	}
	var edges []edge
	for i := range replies {
		if r := &replies[i]; r.accepted() {
			edges = append(edges, edge{r.sent, 1}, edge{r.done, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.by - b.by // what ends then makes room
	})
	open, most := 0, 0
	for _, e := range edges {
		open += e.by
		most = max(most, open)
	}
	return most
}
