package simbatch

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"time"
)

// file is an upload, or the results of a batch, which are written when they are fetched.
type file struct {
	api     api
	id      string
	name    string
	purpose string
	mime    string
	data    []byte
	created time.Time
	begun   bool // the upload is not complete
	deleted bool

	batch     *batch // nil: an upload
	failures  bool   // of two result files, the one for lines that failed
	downloads int
}

// newResult adds a result file.
func (h *Handler) newResult(b *batch, failures bool) *file {
	f := &file{api: b.api, id: h.newID(b.api.traits().fileID), batch: b, purpose: "batch_output", failures: failures}
	h.files = append(h.files, f)
	return f
}

// holds reports whether a result file has the line at a place in the order.
func (f *file) holds(place int) bool {
	b := f.batch
	t := b.api.traits()
	failed := b.lines[b.order[place]].fail != 0
	if place >= b.runs {
		if !t.lists {
			return false
		}
		failed = true
	}
	return t.one || failed == f.failures
}

// exists reports whether a result file was written. A file without lines is not.
func (f *file) exists(now time.Time) bool {
	b := f.batch
	if b.phase(now) != ended || b.outcome == invalid || b.outcome == broken {
		return false
	}
	for place := range b.order {
		if f.holds(place) {
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
		return !f.begun && !f.deleted
	}
	return !f.deleted && !h.config.LoseResults && f.exists(now)
}

// content returns the bytes of a file.
func (h *Handler) content(f *file) []byte {
	b := f.batch
	if b == nil {
		return f.data
	}
	var out []byte
	for place, i := range b.order {
		if !f.holds(place) {
			continue
		}
		l := &b.lines[i]
		status, body := 0, []byte(nil)
		if place < b.runs {
			status, body = h.answer(b, l)
		}
		out = append(append(out, b.api.line(b, l, status, body)...), '\n')
		if place == 0 {
			out = slices.Grow(out, len(out)*len(b.lines))
		}
	}
	return out
}

// answer returns the response to a line.
func (h *Handler) answer(b *batch, l *line) (status int, body []byte) {
	return h.host.Answer(b.asked.endpoint, b.asked.model, l.body, b.created, int(l.fail))
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

// findFile returns the file of an API with that id, or nil.
func (h *Handler) findFile(a api, id string) *file {
	for _, f := range h.files {
		if f.id == id && f.api == a {
			return f
		}
	}
	return nil
}

// input returns the upload of that id, or nil.
func (h *Handler) input(a api, id string) *file {
	f := h.findFile(a, id)
	if f == nil || f.batch != nil || f.begun || f.deleted {
		return nil
	}
	return f
}

// ofFile answers file, content and remove.
func (h *Handler) ofFile(r *request, operation string) reply {
	f := h.findFile(r.api, r.id)
	google := r.api == api(gemini{})
	switch readable := f != nil && h.readable(f, r.now); {
	case readable && google && operation == "content" && f.batch == nil:
		return h.refuse(r, bad("Only generated files can be downloaded."))
	case !readable && google && operation == "content" && f != nil && f.batch != nil:
		return h.refuse(r, r.api.missing(r, ""))
	case !readable:
		return h.refuse(r, r.api.missing(r, "file"))
	case operation == "content":
		return h.download(f, "application/octet-stream")
	case operation == "remove": // a batch keeps the lines that it read from the file
		f.deleted, f.data = true, nil
		if google {
			return answer(object{})
		}
		return answer(object{"id": f.id, "object": "file", "deleted": true})
	}
	return answer(r.api.file(h, f, r))
}

// listedFiles returns the files that lists show, newest first. Gemini lists no results.
func (h *Handler) listedFiles(r *request) []*file {
	var list []*file
	purpose := r.query.Get("purpose")
	for _, f := range h.files {
		if f.batch != nil {
			f.created = f.batch.ended()
		}
		if f.api == r.api && h.readable(f, r.now) && r.now.Sub(f.created) >= h.config.ListDelay &&
			(purpose == "" || purpose == f.purpose) && (f.batch == nil || r.api == api(openai{})) {
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(x, y *file) int { return int(x.created.Unix() - y.created.Unix()) })
	slices.Reverse(list)
	return list
}

func fileID(f *file) string { return f.id }

// upload stores a file that is sent as a form: https://platform.openai.com/docs/api-reference/files/create
func (h *Handler) upload(r *request) reply {
	f := &file{api: r.api}
	if err := readForm(r, f); err != nil || f.data == nil {
		return h.refuse(r, missingParameter("file"))
	}
	if f.purpose == "" {
		return h.refuse(r, missingParameter("purpose"))
	}
	f.id, f.created = h.newID(r.api.traits().fileID), r.now
	h.files = append(h.files, f)
	h.stats.Files++
	out := answer(r.api.file(h, f, r))
	out.lost = h.drops(hashOf(f.data))
	return out
}

// readForm reads the parts of a form into a file.
func readForm(r *request, f *file) error {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	form := multipart.NewReader(bytes.NewReader(r.body), params["boundary"])
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return err
		}
		switch part.FormName() {
		case "purpose":
			f.purpose = string(value)
		case "file":
			f.name, f.data = part.FileName(), value
		}
	}
}
