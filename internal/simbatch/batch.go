package simbatch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// batch is one batch.
type batch struct {
	api      api
	id       string
	asked    asked
	created  time.Time
	latency  time.Duration
	tokens   map[string]int // by model
	lines    []line
	order    []int32 // in which the lines run
	problems []lineProblem

	outcome   outcome
	runs      int // number of lines in order that run
	cancelled time.Time
	output    *file
	errors    *file // nil if there is one result file
}

// asked is what the request that created a batch states.
type asked struct {
	endpoint string          // path
	model    string          // ""; the lines name it
	input    string          // id of a file
	metadata json.RawMessage // of Gemini: the display name
}

// lineProblem is an error in a file of requests.
type lineProblem struct {
	Code    string  `json:"code"`
	Line    *int    `json:"line"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
}

// line is one request. Its body is a part of the upload, and its response is made when it is fetched.
type line struct {
	id   string
	body []byte
	hash hash  // of the body
	fail int16 // status of the error; 0: it is answered
}

// outcome is how a batch ends.
type outcome int

const (
	completed outcome = iota
	expired
	invalid // it fails validation
	broken  // it fails by a server error
	cancelled
)

// phase is the progress of a batch.
type phase int

const (
	validating phase = iota
	running
	finishing
	ended
)

// validated, finished and ended are the instants at which the phase changes.
func (b *batch) validated() time.Time { return b.created.Add(b.latency / 10) }
func (b *batch) finished() time.Time  { return b.created.Add(b.latency / 10 * 9) }

func (b *batch) ended() time.Time {
	switch b.outcome {
	case invalid:
		return b.validated()
	case broken:
		return b.created.Add(b.latency / 2)
	case cancelled:
		return b.cancelled.Add(b.latency / 10)
	}
	return b.created.Add(b.latency)
}

func (b *batch) phase(now time.Time) phase {
	switch {
	case !now.Before(b.ended()):
		return ended
	case now.Before(b.validated()):
		return validating
	case b.outcome != cancelled && !now.Before(b.finished()):
		return finishing
	}
	return running
}

// done returns the number of lines that have run.
func (b *batch) done(now time.Time) int {
	if !now.Before(b.finished()) || !now.Before(b.ended()) {
		return b.runs
	}
	part := float64(now.Sub(b.validated())) / float64(b.finished().Sub(b.validated()))
	return min(b.runs, int(max(part, 0)*float64(len(b.lines))))
}

// tally counts the lines that were answered and those that failed.
func (b *batch) tally(now time.Time) (answered, failed int) {
	for _, i := range b.order[:b.done(now)] {
		if b.lines[i].fail == 0 {
			answered++
		} else {
			failed++
		}
	}
	return answered, failed
}

// create creates a batch, unless the request is wrong or a limit is reached.
func (h *Handler) create(r *request) reply {
	t := r.api.traits()
	b := &batch{api: r.api, created: r.now, latency: h.config.Latency, asked: asked{endpoint: t.endpoint}}
	if p := r.api.create(h, r, b); p != nil {
		return h.refuse(r, p)
	}
	if short := h.shortfall(b); short != nil {
		if p := r.api.full(h, b, short); p != nil {
			p.status, p.wait, p.why = http.StatusTooManyRequests, short.wait, short.why
			return h.refuse(r, p)
		}
		h.stats.Refused[short.why]++
	}
	b.id = h.newID(t.batchID)
	b.output = h.newResult(b, false)
	if !t.one {
		b.errors = h.newResult(b, true)
	}
	h.start(b)
	out := answer(r.api.object(h, b, r))
	out.lost = h.drops(hashOf([]byte(r.URL.Path), r.body))
	return out
}

// readLines calls f for each line of a file of requests that is not blank, with its number from 1, the values of the named
// members, and whether it is a JSON object.
func readLines(data []byte, names []string, f func(number int, values [][]byte, ok bool)) {
	for number := 1; len(data) > 0; number++ {
		var text []byte
		text, data, _ = bytes.Cut(data, []byte{'\n'})
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		s := jsonscan.New(text)
		values := readMembers(&s, names)
		f(number, values, s.End())
	}
}

// readMembers reads an object, and returns the values of the named members as parts of the text.
func readMembers(s *jsonscan.Scanner, names []string) [][]byte {
	values := make([][]byte, len(names))
	for s.Enter('{'); s.Next('}'); {
		i := slices.Index(names, string(jsonscan.Name(s.Key())))
		if value := s.Span(); i >= 0 {
			values[i] = value
		}
	}
	return values
}

// read reads a file of Gemini's requests: https://ai.google.dev/gemini-api/docs/batch-api#input-file
func (b *batch) read(data []byte) {
	readLines(data, []string{"key", "request"}, func(number int, values [][]byte, ok bool) {
		l := line{id: text(values[0]), body: values[1]}
		if !ok || !isObject(l.body) {
			b.problems = append(b.problems, lineProblem{Message: fmt.Sprintf("Line %d of the input file is not a valid request.", number)})
		}
		b.lines = append(b.lines, l)
	})
	if len(b.lines) == 0 {
		b.problems = append(b.problems, lineProblem{Message: "The input file is empty."})
	}
}

// text returns the string that a value is, or "".
func text(value []byte) string {
	s := jsonscan.New(value)
	return s.Text()
}

func isObject(value []byte) bool { return len(value) > 0 && value[0] == '{' }

// weigh adds up the tokens of a batch by model, and marks the invalid lines.
func (h *Handler) weigh(b *batch) {
	b.tokens = map[string]int{}
	for i := range b.lines {
		l := &b.lines[i]
		l.hash = hashOf(l.body)
		model, tokens, ok := h.host.Charge(b.asked.endpoint, b.asked.model, l.body)
		if !ok {
			l.fail = http.StatusBadRequest
		}
		b.tokens[model] += tokens
	}
}

// shortfall is the limit that a batch exceeds.
type shortfall struct {
	why   string // in Stats.Refused
	model string // whose tokens are too many
	wait  time.Duration
}

func (h *Handler) shortfall(b *batch) *shortfall {
	var lastHour []time.Time
	pending, enqueued := len(b.lines), maps.Clone(b.tokens)
	for _, other := range h.batches {
		if b.created.Sub(other.created) < time.Hour {
			lastHour = append(lastHour, other.created)
		}
		if other.phase(b.created) == ended {
			continue
		}
		pending += len(other.lines)
		for model, n := range other.tokens {
			if _, ours := enqueued[model]; ours {
				enqueued[model] += n
			}
		}
	}
	limits, t := &h.config, b.api.traits()
	if n := limits.PerHour; n > 0 && len(lastHour) >= n {
		return &shortfall{why: "per_hour", wait: lastHour[len(lastHour)-n].Add(time.Hour).Sub(b.created)}
	}
	if limits.Pending > 0 && t.pending && pending > limits.Pending {
		return &shortfall{why: "pending"}
	}
	for _, model := range slices.Sorted(maps.Keys(enqueued)) {
		if limits.EnqueuedTokens > 0 && t.enqueues && enqueued[model] > limits.EnqueuedTokens {
			return &shortfall{why: "enqueued_tokens", model: model}
		}
	}
	return nil
}

// start decides how a batch goes, and starts it.
func (h *Handler) start(b *batch) {
	t := b.api.traits()
	h.stats.Batches++
	every := func(n int) bool { return n > 0 && h.stats.Batches%n == 0 }
	switch {
	case len(b.problems) > 0:
		b.outcome, b.lines, b.tokens = invalid, nil, nil
	case every(h.config.ExpireEvery):
		b.outcome = expired
	case every(h.config.FailEvery):
		b.outcome = broken
	}
	h.draw(b)
	switch {
	case b.outcome == completed:
		b.runs = len(b.lines)
	case b.outcome == expired && t.partial:
		b.runs = len(b.lines) / 2
	case b.outcome == broken && !t.breaks:
		b.outcome, b.runs = completed, len(b.lines)
		for i := range b.lines {
			b.lines[i].fail = http.StatusInternalServerError
		}
	}
	h.credit(b, 0, b.runs, 1)
	h.batches = append(h.batches, b)
}

// draw decides the order in which the lines run, and which of them fail.
func (h *Handler) draw(b *batch) {
	h.stats.Lines += len(b.lines)
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
	if !b.api.traits().ordered {
		slices.SortFunc(b.order, func(x, y int32) int { return cmp.Compare(keys[x], keys[y]) })
	}
}

// cancel cancels a batch. It reports false if the batch has ended.
func (h *Handler) cancel(b *batch, now time.Time) bool {
	if b.phase(now) == ended {
		return false
	}
	if b.outcome == cancelled {
		return true
	}
	ran := 0
	if b.api.traits().partial {
		ran = b.done(now)
	}
	h.credit(b, ran, b.runs, -1)
	b.outcome, b.cancelled, b.runs = cancelled, now, ran
	return true
}

// credit counts lines that run, from one place in the order to another, or with -1 takes them back.
func (h *Handler) credit(b *batch, from, to, sign int) {
	for _, i := range b.order[from:max(from, to)] {
		l := &b.lines[i]
		if l.fail != 0 {
			h.stats.Failed += sign
			continue
		}
		h.stats.Answered += sign
		if !h.noStats {
			h.ran[hashOf([]byte(l.id+"\n"), l.body)] += sign
			h.paid[l.hash] += sign
		}
	}
}

// listedBatches returns the batches of an API that lists show, newest first.
func (h *Handler) listedBatches(r *request) []*batch {
	var list []*batch
	for _, b := range slices.Backward(h.batches) {
		if b.api == r.api && r.now.Sub(b.created) >= h.config.ListDelay {
			list = append(list, b)
		}
	}
	return list
}

func batchID(b *batch) string { return b.id }

// ofBatch answers get, cancel, delete and results.
func (h *Handler) ofBatch(r *request, operation string) reply {
	i := slices.IndexFunc(h.batches, func(b *batch) bool { return b.id == r.id && b.api == r.api })
	if i < 0 {
		return h.refuse(r, r.api.missing(r, "batch"))
	}
	b := h.batches[i]
	switch operation {
	case "get":
		return answer(r.api.object(h, b, r))
	case "results":
		if !h.readable(b.output, r.now) {
			return h.refuse(r, &problem{status: http.StatusNotFound, message: "Message batch " + b.id + " has no available results"})
		}
		return h.download(b.output, "application/x-jsonl")
	}
	o, p := r.api.end(h, b, r, operation == "delete")
	if p != nil {
		return h.refuse(r, p)
	}
	return answer(o)
}

// forget deletes a batch and its results.
func (h *Handler) forget(b *batch) {
	b.output.deleted = true
	h.batches = slices.DeleteFunc(h.batches, func(other *batch) bool { return other == b })
}
