package simbatch

import (
	"bytes"
	"cmp"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"time"
)

// file is an upload, or the results of a batch, which are written when they are fetched.
type file struct {
	api     *api
	id      string
	name    string
	purpose string
	mime    string
	data    []byte
	created time.Time // zero: the upload is not complete

	batch     *batch // nil: an upload
	failures  bool   // of two result files, the one for lines that failed
	downloads int
}

// newResult adds a result file.
func (h *Handler) newResult(b *batch, failures bool) *file {
	f := &file{api: b.api, id: h.newID(b.api.lists["file"].prefix), batch: b, purpose: "batch_output", failures: failures}
	h.files = append(h.files, f)
	return f
}

// written is the instant at which a file is complete.
func (f *file) written() time.Time {
	if f.batch != nil {
		return f.batch.ended()
	}
	return f.created
}

// lines yields the lines of a result file, and whether they ran.
func (f *file) lines(yield func(l *line, ran bool) bool) {
	b := f.batch
	for place, i := range b.order {
		l, ran := &b.lines[i], place < b.runs
		failed := l.fail != 0 || !ran
		if (!b.api.split || failed == f.failures) && !yield(l, ran) {
			return
		}
	}
}

// exists reports whether a result file was written. A file without lines is not.
func (f *file) exists(now time.Time) bool {
	s := f.batch.state(now)
	if s == completed || f.batch.api.partial && (s == expired || s == cancelled) {
		for range f.lines {
			return true
		}
	}
	return false
}

// idOrNull returns the id of a result file, or null while it does not exist.
func (f *file) idOrNull(now time.Time) any {
	if f.exists(now) {
		return f.id
	}
	return nil
}

// readable reports whether a file can be fetched.
func (h *Handler) readable(f *file, now time.Time) bool {
	if f.batch == nil {
		return !f.created.IsZero()
	}
	return !h.config.LoseResults && !f.batch.deleted && f.exists(now)
}

// content returns the bytes of a file.
func (h *Handler) content(f *file) []byte {
	b := f.batch
	if b == nil {
		return f.data
	}
	var out []byte
	for l, ran := range f.lines {
		status, body := 0, []byte(nil)
		if ran {
			status, body = h.answer(b, l)
		}
		out = append(append(out, b.api.line(b, l, status, body)...), '\n')
	}
	return out
}

// answer returns the response to a line.
func (h *Handler) answer(b *batch, l *line) (status int, body []byte) {
	return h.host.Answer(b.endpoint, b.model, l.body, b.created, int(l.fail))
}

// download is the reply with the content of a file.
func (h *Handler) download(f *file, kind string) reply {
	out := reply{status: http.StatusOK, kind: kind, body: h.content(f)}
	if f.downloads++; f.batch != nil && f.downloads <= h.config.CutResults {
		h.stats.Cut++
		out.cut = 2 - f.downloads%2
	}
	return out
}

// find returns the file of an API with that id, or nil.
func (h *Handler) find(a *api, id string) *file {
	for _, f := range h.files {
		if f.id == id && f.api == a {
			return f
		}
	}
	return nil
}

// input returns the complete upload of that id, or nil.
func (h *Handler) input(a *api, id string) *file {
	if f := h.find(a, id); f != nil && f.batch == nil && !f.created.IsZero() {
		return f
	}
	return nil
}

// ofFile answers file, content and remove.
func (h *Handler) ofFile(r *request, operation string) reply {
	f, missing := h.find(r.api, r.id), r.api.problem("no_file", "id", r.id)
	if f != nil && f.batch != nil && operation == "content" {
		missing = cmp.Or(r.api.problem("no_results"), missing)
	}
	if f == nil || !h.readable(f, r.now) {
		return h.refuse(r, missing)
	}
	switch operation {
	case "content":
		if p := r.api.problem("upload"); p != nil && f.batch == nil {
			return h.refuse(r, p)
		}
		return h.download(f, "application/octet-stream")
	case "remove": // a batch keeps the lines that it read from the file
		h.files = slices.DeleteFunc(h.files, func(other *file) bool { return other == f })
		return answer(r.api.deleted(f.id))
	}
	return answer(r.api.file(h, f, r))
}

// upload stores a file that is sent as a form: https://platform.openai.com/docs/api-reference/files/create
func (h *Handler) upload(r *request) reply {
	_, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	form, err := multipart.NewReader(bytes.NewReader(r.body), params["boundary"]).ReadForm(int64(len(r.body)))
	if err != nil || len(form.File["file"]) == 0 {
		return h.refuse(r, r.api.problem("missing", "detail", "file"))
	}
	if len(form.Value["purpose"]) == 0 {
		return h.refuse(r, r.api.problem("missing", "detail", "purpose"))
	}
	head := form.File["file"][0]
	f := &file{api: r.api, id: h.newID(r.api.lists["file"].prefix), name: head.Filename, purpose: form.Value["purpose"][0], created: r.now}
	part, err := head.Open()
	if err == nil {
		f.data, err = io.ReadAll(part)
	}
	if err != nil {
		panic(err) // the form is in memory
	}
	h.files = append(h.files, f)
	return h.stored(f, r.api.file(h, f, r))
}

// stored is the reply to a complete upload.
func (h *Handler) stored(f *file, o object) reply {
	h.stats.Files++
	out := answer(o)
	out.lost = h.drops(hashOf(f.data))
	return out
}
