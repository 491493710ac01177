package simbatch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/prose"
)

// batch is one batch.
type batch struct {
	asked
	api      *api
	id       string
	created  time.Time
	latency  time.Duration
	tokens   map[string]int // by model
	lines    []line
	order    []int32    // in which the lines run
	problems []*problem // why it fails

	fate      state // in which it ends
	runs      int   // number of lines in order that run
	cancelled time.Time
	deleted   bool
	output    *file
	errors    *file // nil if there is one result file
}

// asked is what the request that created a batch states.
type asked struct {
	endpoint string          // path
	model    string          // ""; the lines name it
	input    string          // id of a file; "": the request contains the lines
	metadata json.RawMessage // of Gemini: the display name
}

// line is one request. Its body is a part of the upload, and its response is made when it is fetched.
type line struct {
	id   string
	body []byte
	hash hash  // of the body
	fail int16 // status of the error; 0: it is answered
}

// state is the state of a batch.
type state int

const (
	validating state = iota
	running
	finishing
	cancelling
	completed // the first state of a batch that has ended
	expired
	invalid // it failed validation
	broken  // it failed by a server error
	cancelled
)

// validated, finished and ended are the instants at which the state changes.
func (b *batch) validated() time.Time { return b.created.Add(b.latency / 10) }
func (b *batch) finished() time.Time  { return b.created.Add(b.latency / 10 * 9) }

func (b *batch) ended() time.Time {
	switch b.fate {
	case invalid:
		return b.validated()
	case broken:
		return b.created.Add(b.latency / 2)
	case cancelled:
		return b.cancelled.Add(b.latency / 10)
	}
	return b.created.Add(b.latency)
}

func (b *batch) state(now time.Time) state {
	switch {
	case !now.Before(b.ended()):
		return b.fate
	case b.fate == cancelled:
		return cancelling
	case now.Before(b.validated()):
		return validating
	case now.Before(b.finished()):
		return running
	}
	return finishing
}

// tally counts the lines that were answered and those that failed.
func (b *batch) tally(now time.Time) (answered, failed int) {
	done := b.runs
	if now.Before(b.finished()) && now.Before(b.ended()) {
		share := float64(now.Sub(b.validated())) / float64(b.finished().Sub(b.validated()))
		done = min(done, int(max(share, 0)*float64(len(b.lines))))
	}
	for _, i := range b.order[:done] {
		if b.lines[i].fail == 0 {
			answered++
		}
	}
	return answered, done - answered
}

// create creates a batch, unless its first error has a status. Another error makes the batch fail.
func (h *Handler) create(r *request) reply {
	b := &batch{api: r.api, created: r.now, latency: h.config.Latency, asked: asked{endpoint: r.api.endpoint}}
	input, p := r.api.create(h, r, b)
	if p != nil {
		return h.refuse(r, p)
	}
	if p = h.read(b, input); p != nil && p.status != 0 {
		return h.refuse(r, p)
	}
	b.id = h.newID(r.api.lists["batch"].prefix)
	b.output = h.newResult(b, false)
	if r.api.split {
		b.errors = h.newResult(b, true)
	}
	h.start(b)
	out := answer(r.api.batch(h, b, r))
	out.lost = h.drops(hashOf([]byte(r.URL.Path), r.body))
	return out
}

// read reads the requests of a batch, and returns the first error.
func (h *Handler) read(b *batch, input []byte) *problem {
	requests, size := h.maxima(b.api)
	if len(input) > size && b.wrong("too_large", 0, "limit", size) {
		return b.problems[0]
	}
	n, seen := 0, map[string]bool{}
	if s := jsonscan.New(input); b.input == "" {
		for range s.Elements {
			b.add(n, s.Span(), seen)
			n++
		}
	} else {
		for text := range bytes.Lines(input) {
			if n++; len(bytes.TrimSpace(text)) > 0 {
				b.add(n, text, seen)
			}
		}
	}
	switch {
	case len(b.problems) > 0:
	case len(b.lines) == 0 && b.input == "":
		b.wrong("no_requests", 0)
	case len(b.lines) == 0:
		b.wrong("empty_file", 0)
	case requests > 0 && len(b.lines) > requests:
		b.wrong("too_many", 0, "count", len(b.lines), "limit", requests)
	default:
		h.weigh(b)
		h.limit(b)
	}
	if len(b.problems) == 0 {
		return nil
	}
	return b.problems[0]
}

// add adds a line, and its first error.
func (b *batch) add(number int, text []byte, seen map[string]bool) {
	s := jsonscan.New(text)
	values := readMembers(&s, b.api.members...)
	l := line{id: unquote(values[0]), body: values[1]}
	method, url := http.MethodPost, b.endpoint
	if len(values) > 2 {
		method, url = unquote(values[2]), unquote(values[3])
	}
	for _, check := range [...]struct {
		name, detail string
		fails        bool
	}{
		{"line", "", !s.End()},
		{"id", "custom_id", !b.api.ids.MatchString(l.id)},
		{"duplicate", l.id, seen[l.id]},
		{"missing", "method", method == ""},
		{"missing", "url", url == ""},
		{"body", "body", len(l.body) == 0 || l.body[0] != '{'},
		{"method", method, method != http.MethodPost},
		{"url", url, url != b.endpoint},
	} {
		if check.fails && b.wrong(check.name, number, "line", number, "detail", check.detail) {
			break
		}
	}
	seen[l.id] = true
	b.lines = append(b.lines, l)
}

// wrong adds an error of a line, or with number 0 of the whole batch, if the API has it. The first 100 count.
func (b *batch) wrong(name string, number int, values ...any) bool {
	p := b.api.problem(name, values...)
	if p != nil && len(b.problems) < 100 {
		p.line = number
		b.problems = append(b.problems, p)
	}
	return p != nil
}

// readMembers reads an object, and returns the values of the named members as parts of the text.
func readMembers(s *jsonscan.Scanner, names ...string) [][]byte {
	values := make([][]byte, len(names))
	for s.Enter('{'); s.Next('}'); {
		i := slices.Index(names, string(jsonscan.Name(s.Key())))
		if value := s.Span(); i >= 0 {
			values[i] = value
		}
	}
	return values
}

// unquote returns the string that a value is, or "".
func unquote(value []byte) string {
	s := jsonscan.New(value)
	return s.Text()
}

// weigh adds up the tokens of a batch by model, and marks the invalid lines. OpenAI's lines have one model:
// https://platform.openai.com/docs/guides/batch#1-prepare-your-batch-file
func (h *Handler) weigh(b *batch) {
	b.tokens = map[string]int{}
	first := ""
	for i := range b.lines {
		l := &b.lines[i]
		l.hash = hashOf(l.body)
		model, tokens, ok := h.host.Charge(b.endpoint, b.model, l.body)
		if !ok {
			l.fail = http.StatusBadRequest
		}
		b.tokens[model] += tokens
		if i == 0 {
			first = model
		} else if model != first {
			b.wrong("model", i+1, "model", model, "first", first)
		}
	}
	if b.api.problems["model"] != (problem{}) {
		b.model = first
	}
}

// limit adds the error for the limit that a batch exceeds.
func (h *Handler) limit(b *batch) {
	var lastHour []time.Time
	pending, enqueued := len(b.lines), maps.Clone(b.tokens)
	for _, other := range h.batches {
		if other.deleted {
			continue
		}
		if b.created.Sub(other.created) < time.Hour {
			lastHour = append(lastHour, other.created)
		}
		if other.state(b.created) >= completed {
			continue
		}
		pending += len(other.lines)
		for model, n := range other.tokens {
			if _, ours := enqueued[model]; ours {
				enqueued[model] += n
			}
		}
	}
	c := &h.config
	if n := c.PerHour; n > 0 && len(lastHour) >= n {
		wait := lastHour[len(lastHour)-n].Add(time.Hour).Sub(b.created)
		if b.wrong("per_hour", 0, "limit", prose.Group(n), "wait", seconds(wait)) {
			b.problems[0].wait = wait
			return
		}
	}
	if c.Pending > 0 && pending > c.Pending && b.wrong("pending", 0, "limit", prose.Group(c.Pending)) {
		return
	}
	for _, model := range slices.Sorted(maps.Keys(enqueued)) {
		if c.EnqueuedTokens > 0 && enqueued[model] > c.EnqueuedTokens &&
			b.wrong("enqueued_tokens", 0, "model", model, "limit", prose.Group(c.EnqueuedTokens)) {
			return
		}
	}
}

// start decides how a batch goes, and starts it.
func (h *Handler) start(b *batch) {
	h.stats.Batches++
	every := func(n int) bool { return n > 0 && h.stats.Batches%n == 0 }
	switch {
	case len(b.problems) > 0:
		if name := b.problems[0].name; name == "enqueued_tokens" {
			h.stats.Refused[name]++
		}
		b.fate, b.lines, b.tokens = invalid, nil, nil
	case every(h.config.ExpireEvery):
		b.fate = expired
		b.wrong("expired", 0)
		if b.api.partial {
			b.runs = len(b.lines) / 2
		}
	case every(h.config.FailEvery) && b.wrong("broken", 0):
		b.fate = broken
	default:
		b.fate, b.runs = completed, len(b.lines)
		for i := 0; i < b.runs && every(h.config.FailEvery); i++ {
			b.lines[i].fail = http.StatusInternalServerError
		}
	}
	h.draw(b)
	h.batches = append(h.batches, b)
}

// draw decides the order in which the lines run, and which of them fail.
func (h *Handler) draw(b *batch) {
	b.order = make([]int32, len(b.lines))
	keys := make([]float64, len(b.lines))
	share := h.config.Fail / 3
	for i := range b.lines {
		l := &b.lines[i]
		b.order[i], keys[i] = int32(i), h.host.Luck(drawOrder, l.hash, uint32(i))
		if share == 0 || l.fail != 0 {
			continue
		}
		u := h.host.Luck(drawFail, l.hash, h.again(l.hash))
		switch {
		case h.host.Luck(drawBad, l.hash, 0) < share:
			l.fail = http.StatusBadRequest
		case u < share:
			l.fail = http.StatusTooManyRequests
		case u < 2*share:
			l.fail = http.StatusInternalServerError
		}
	}
	if !b.api.ordered {
		slices.SortFunc(b.order, func(x, y int32) int { return cmp.Compare(keys[x], keys[y]) })
	}
}

// cancel cancels a batch that runs.
func (b *batch) cancel(now time.Time) {
	answered, failed := b.tally(now)
	b.fate, b.cancelled, b.runs, b.problems = cancelled, now, 0, nil
	if b.api.partial {
		b.runs = answered + failed
	}
	b.wrong("cancelled", 0)
}

// ofBatch answers get, cancel, delete and results.
func (h *Handler) ofBatch(r *request, operation string) reply {
	a := r.api
	i := slices.IndexFunc(h.batches, func(b *batch) bool { return b.id == r.id && b.api == a && !b.deleted })
	if i < 0 {
		return h.refuse(r, a.problem("no_batch", "id", r.id))
	}
	b := h.batches[i]
	state := b.state(r.now)
	switch operation {
	case "results":
		if !h.readable(b.output, r.now) {
			return h.refuse(r, a.problem("no_results", "id", b.id))
		}
		return h.download(b.output, "application/x-jsonl")
	case "cancel":
		if p := a.problem("ended", "state", a.states[state]); state >= completed && p != nil {
			return h.refuse(r, p)
		}
		if state < cancelling {
			b.cancel(r.now)
		}
		if a.quiet {
			return answer(object{})
		}
	case "delete":
		if p := a.problem("in_progress", "id", b.id); state < completed && p != nil {
			return h.refuse(r, p)
		}
		b.deleted = true
		return answer(a.deleted(b.id))
	}
	return answer(a.batch(h, b, r))
}
