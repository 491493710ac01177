package simbatch

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// api is what differs between the providers' Batch APIs, as a table.
type api struct {
	lists     map[string]list // of "batch" and "file"
	separator string          // between an id and a verb in a path
	endpoint  string          // path that answers lines; the request that creates a batch may name another one
	lacks     string          // operations that the API does not have
	requests  int             // maximum of a batch; 0: none
	bytes     int             // maximum of a batch

	members []string       // of a line of requests: the id, the body, and OpenAI's method and URL
	ids     *regexp.Regexp // that lines may have
	states  [cancelled + 1]string
	// problems has the errors by name. An API does not check for an error that it does not have.
	problems map[string]problem
	kinds    map[int]string // types of errors by status; 0: of the other statuses
	ends
	form
}

// list is a list of batches or files.
type list struct {
	path       string
	prefix     string // of ids
	usual, max int    // entries on a page
}

// ends is how batches end.
type ends struct {
	partial bool // a batch that expired or was cancelled has results, which name the lines that did not run
	ordered bool // results are in the order of the requests
	split   bool // results are in two files, for answers and errors; files of results are listed
	quiet   bool // the response to a cancellation is empty
}

// form is the form of requests and responses.
type form interface {
	// create reads a request that creates a batch, and returns the requests as JSON Lines or as a list.
	create(h *Handler, r *request, b *batch) (input []byte, p *problem)
	// failure is the body of an error of a kind.
	failure(p *problem, kind string) object
	// batch and file describe a batch and a file, deleted is the response to the deletion of either, and page is a page of a list.
	batch(h *Handler, b *batch, r *request) object
	file(h *Handler, f *file, r *request) object
	deleted(id string) object
	page(of string, part []object, ids []string, more bool) object
	// line is the line of a result file for a response; status 0: the line did not run.
	line(b *batch, l *line, status int, body []byte) string
}

// object is a JSON object of a response.
type object = map[string]any

var apis = [...]*api{openaiAPI, anthropicAPI, geminiAPI}

// problem is an error of a Batch API. Its message and its param have placeholders in braces.
type problem struct {
	status  int // 0: a batch is created in spite of it, and fails; of another request 400
	message string
	code    string
	param   string

	name string
	line int           // of a file; 0: none
	wait time.Duration // 0: not stated
}

// problem returns the error of a name, with the values of placeholders, which follow their names. It returns nil if the API has no
// such error.
func (a *api) problem(name string, values ...any) *problem {
	p, ok := a.problems[name]
	if !ok {
		return nil
	}
	p.name = name
	for i := 0; i < len(values); i += 2 {
		place, value := fmt.Sprintf("{%s}", values[i]), fmt.Sprint(values[i+1])
		p.message, p.param = strings.ReplaceAll(p.message, place, value), strings.ReplaceAll(p.param, place, value)
	}
	return &p
}

// maxima returns the maximum requests and bytes of a batch.
func (h *Handler) maxima(a *api) (requests, size int) {
	return cmp.Or(h.config.MaxRequests, a.requests), cmp.Or(h.config.MaxBytes, a.bytes)
}

// entry is a batch or a file in a list.
type entry struct {
	id       string
	created  time.Time
	describe func() object
}

// page answers with the part of a list that a request asks for, by the id before it or the id after it. The newest entry comes first.
func (h *Handler) page(r *request) reply {
	var all []entry
	for _, b := range h.batches {
		if r.of == "batch" && b.api == r.api && !b.deleted {
			all = append(all, entry{b.id, b.created, func() object { return r.api.batch(h, b, r) }})
		}
	}
	q, before := r.query, r.query.Get("before_id")
	purpose := q.Get("purpose")
	for _, f := range h.files {
		if r.of == "file" && f.api == r.api && h.readable(f, r.now) && (purpose == "" || purpose == f.purpose) &&
			(f.batch == nil || r.api.split) {
			all = append(all, entry{f.id, f.written(), func() object { return r.api.file(h, f, r) }})
		}
	}
	all = slices.DeleteFunc(all, func(e entry) bool { return r.now.Sub(e.created) < h.config.ListDelay })
	slices.SortStableFunc(all, func(x, y entry) int { return int(x.created.Unix() - y.created.Unix()) })
	if (q.Get("order") != "asc") != (before != "") {
		slices.Reverse(all)
	}
	limit, err := strconv.Atoi(cmp.Or(q.Get("limit"), q.Get("pageSize")))
	if err != nil || limit < 1 {
		limit = r.api.lists[r.of].usual
	}
	limit = min(limit, r.api.lists[r.of].max)
	if cursor := cmp.Or(before, q.Get("after"), q.Get("after_id"), q.Get("pageToken")); cursor != "" {
		if i := slices.IndexFunc(all, func(e entry) bool { return e.id == cursor }); i >= 0 {
			all = all[i+1:]
		} else {
			all = nil
		}
	}
	part := all[:min(len(all), limit)]
	if before != "" {
		slices.Reverse(part)
	}
	objects := []object{}
	var ids []string
	for _, e := range part {
		objects, ids = append(objects, e.describe()), append(ids, e.id)
	}
	return answer(r.api.page(r.of, objects, ids, len(all) > limit))
}

// orNull is null for a zero.
func orNull[T comparable](v T) any {
	if v == *new(T) {
		return nil
	}
	return v
}

// rfc3339 is an instant as Anthropic and Google write it.
func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// seconds is a wait in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.Itoa(int((d+time.Second-1)/time.Second)) + "s"
}
