package cluster

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// partLength is the time after which members may read the content of guards again: see ledger_state.lua.
const partLength = 250 * time.Millisecond

// memory is the fields of a record as a member remembers them.
type memory struct {
	record
	told time.Time // when the content of guards was
}

// guard is a configured limit of a dimension, and the amounts that were sent in the last period, as a member remembers them.
type guard struct {
	dimension limits.Dimension
	limit     float64
	period    time.Duration
	burst     float64 // seconds of refill that its bucket holds; 0: a sliding window
	parts     []guardPart
}

type guardPart struct {
	index  int64 // times width: Redis's clock
	amount float64
}

// guardsAt is the multiple of partLength at which the content of the record's guards was told; 0 is never.
func (r *record) guardsAt() string {
	at, _, _ := strings.Cut(r[fieldGuards], "\n")
	if at == "" {
		return "0"
	}
	return at
}

// guards are the record's, as contentof in ledger_state.lua writes them.
func (r *record) guards() (out []guard) {
	for i, line := range strings.Split(r[fieldGuards], "\n") {
		name, rest, _ := strings.Cut(line, " ")
		d, err := strconv.Atoi(name)
		if i < 2 || err != nil || d < 1 || d > int(limits.NumDimensions-limits.Requests) {
			continue
		}
		head, older, _ := strings.Cut(rest, "|")
		h := readNumbers(head)
		g := guard{dimension: limits.Requests + limits.Dimension(d-1), limit: h[0]}
		if size := h[1]; size > 0 {
			g.period = g.dimension.Window()
			g.burst = size * g.period.Seconds() / g.limit
			out = append(out, g)
			continue
		}
		g.period = fromMicros(h[2])
		for _, part := range append(strings.Fields(older), numbersText(h[3])+":"+numbersText(h[4])) {
			at, amount, _ := strings.Cut(part, ":")
			index, _ := strconv.ParseFloat(at, 64)
			n, _ := strconv.ParseFloat(amount, 64)
			g.parts = append(g.parts, guardPart{int64(index), n})
		}
		out = append(out, g)
	}
	return out
}

// guarded are the dimensions that have a configured limit.
func (r *record) guarded() (out [limits.NumDimensions]bool) {
	for _, g := range r.guards() {
		out[g.dimension] = true
	}
	return out
}

// remember takes over a record as Redis told it, and keeps the content of guards that it did not tell again.
func (m *memory) remember(told record, at time.Time) {
	if told[fieldGuards] == "" {
		told[fieldGuards] = m.record[fieldGuards]
	} else {
		m.told = at
	}
	m.record = told
}

// room is from when on all members together, each by itself, can use that part of each rate and stay within configured limits
// beside what was sent before. What was spent since the content of guards was told is taken to be sent now.
func (m *memory) room(now time.Time, part float64) time.Time {
	until := now
	told, _ := strconv.ParseInt(m.guardsAt(), 10, 64)
	lines := strings.SplitN(m.record[fieldGuards], "\n", 3)
	if len(lines) < 3 {
		return until
	}
	since := sum(readVector(m.record[fieldSpent]), readVector(lines[1]), -1)
	clock := time.Duration(told)*partLength + now.Sub(m.told) // Redis's clock says as much at least
	for _, g := range m.guards() {
		if g.burst > 0 {
			continue // it refills faster than that part of the rate is used
		}
		width, stays := gate.SharedParts(g.period)
		newest := int64(clock / width)
		parts, rest := append(g.parts, guardPart{newest, since[g.dimension]}), 0.0
		for _, p := range slices.Backward(parts) {
			rest += p.amount
			if rest <= (1-part)*g.limit {
				continue
			}
			leaves := now.Add(time.Duration(p.index+stays-newest) * width)
			used := seconds((g.limit - rest) / (part * g.limit / g.period.Seconds())) // room for so long, when the older parts have left
			if from := leaves.Add(-used); from.After(until) {
				until = from
			}
		}
	}
	return until
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// levels are the levels of a record's buckets at an instant of Redis's.
func (r *record) levels(now float64) *limits.Vector {
	v := new(limits.Vector)
	for d := limits.Requests; d < limits.NumDimensions; d++ {
		v[d] = readBudget(r[fieldBudget+int(d-limits.Requests)], now).level
	}
	return v
}

// budget is a bucket, or a fixed window of a period. It limits nothing while its rate is zero.
type budget struct {
	level, rate, cap float64
	period           time.Duration
}

// readBudget reads a budget as it is at an instant of Redis's.
func readBudget(text string, now float64) budget {
	n := readNumbers(text)
	b := budget{n[0], n[2], n[3], fromMicros(n[4])}
	switch at, ends := n[1], n[5]; {
	case b.rate == 0:
		b.level = 0
	case b.period == 0:
		b.level = min(b.cap, b.level+b.rate*max(0, now-at)/1e6)
	case ends > 0 && now >= ends:
		b.level = b.cap
	}
	return b
}
