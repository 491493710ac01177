package sim

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// openaiFile is https://platform.openai.com/docs/api-reference/files/object, and with its last members
// https://github.com/mistralai/client-python/blob/main/src/mistralai/client/models/fileschema.py
type openaiFile struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Bytes   int     `json:"bytes"`
	Created int64   `json:"created_at"`
	Expires *int64  `json:"expires_at"`
	Name    string  `json:"filename"`
	Purpose string  `json:"purpose"`
	Status  string  `json:"status"`
	Details *string `json:"status_details"`

	Sample string `json:"sample_type"`
	Source string `json:"source"`
	Lines  *int   `json:"num_lines"`
	Type   string `json:"mimetype"`
}

// batchFileLife is how long a file with the purpose batch is kept.
// https://github.com/openai/openai-python/blob/main/src/openai/types/file_create_params.py
const batchFileLife = 30 * 24 * time.Hour

// serveFiles answers for /v1/files; parts are what follows it, split at slashes.
func (o openaiBatches) serveFiles(s *Server, r *control, parts []string) reply {
	id := ""
	if len(parts) > 1 {
		id = parts[1]
	}
	content := len(parts) == 3 && parts[2] == "content"
	switch {
	case id == "" && r.method == http.MethodPost:
		s.countBatch("upload", "")
		return o.upload(s, r)
	case id == "" && r.method == http.MethodGet:
		s.countBatch("files", "")
		return o.files(s, r)
	case content && r.method == http.MethodGet:
		s.countBatch("content", "")
		return o.content(s, r, id)
	case len(parts) == 2 && r.method == http.MethodGet:
		s.countBatch("file", "")
		return o.file(s, r, id)
	case len(parts) == 2 && r.method == http.MethodDelete:
		s.countBatch("remove", "")
		return o.remove(s, r, id)
	}
	return s.refuseBatch(o, unknownURL(r))
}

// noFile is https://community.openai.com/t/no-such-file-object/539471
func noFile(id string) *apiProblem {
	return &apiProblem{status: http.StatusNotFound, message: "No such File object: " + id, param: "id"}
}

// upload is https://platform.openai.com/docs/api-reference/files/create
func (o openaiBatches) upload(s *Server, r *control) reply {
	f, ok := readForm(r)
	switch {
	case !ok || f.data == nil:
		return s.refuseBatch(o, &apiProblem{status: http.StatusBadRequest, message: "Missing required parameter: 'file'.", param: "file",
			code: "missing_required_parameter"})
	case f.purpose == "":
		return s.refuseBatch(o, &apiProblem{status: http.StatusBadRequest, message: "Missing required parameter: 'purpose'.", param: "purpose",
			code: "missing_required_parameter"})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.id = "file-" + s.nextIDLocked()
	s.storeLocked(f)
	return reply{status: http.StatusOK, body: marshal(o.fileObject(f)), lost: s.droppedLocked(f.hash)}
}

// readForm reads the parts of a form.
func readForm(r *control) (*batchFile, bool) {
	_, params, err := mime.ParseMediaType(r.header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return nil, false
	}
	f := &batchFile{}
	form := multipart.NewReader(bytes.NewReader(r.body), params["boundary"])
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			return f, true
		}
		if err != nil {
			return nil, false
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return nil, false
		}
		switch part.FormName() {
		case "purpose":
			f.purpose = string(value)
		case "file":
			f.name, f.data = part.FileName(), value
		}
	}
}

func (openaiBatches) fileObject(f *batchFile) openaiFile {
	expires := f.created.Add(batchFileLife).Unix()
	return openaiFile{ID: f.id, Object: "file", Bytes: len(f.data), Created: f.created.Unix(), Expires: &expires, Name: f.name, Purpose: f.purpose,
		Status: "processed", Sample: "batch_request", Source: "upload", Type: "application/jsonl"}
}

// resultObject is a file of results. Mistral's has the purpose of the requests.
func (openaiBatches) resultObject(f *resultFile, size int) openaiFile {
	out := openaiFile{ID: f.id, Object: "file", Bytes: size, Created: f.batch.ended().Unix(), Name: f.batch.id + "_output.jsonl",
		Purpose: "batch_output", Status: "processed", Sample: "batch_result", Source: "mistral", Type: "application/jsonl"}
	if f.failures {
		out.Name, out.Sample = f.batch.id+"_error.jsonl", "batch_error"
	}
	if f.batch.api == batchAPI(mistralBatches{}) {
		out.Purpose = "batch"
	}
	return out
}

// resultLocked is a file of results that can be fetched, or nil.
func (s *Server) fetchableLocked(id string, now time.Time) *resultFile {
	f := s.store.results[id]
	if f == nil || f.deleted || s.config.Batches.LoseResults || !f.there(now) {
		return nil
	}
	return f
}

// content is https://platform.openai.com/docs/api-reference/files/retrieve-contents
func (o openaiBatches) content(s *Server, r *control, id string) reply {
	s.mu.Lock()
	f, result := s.fileLocked(id), s.fetchableLocked(id, r.now)
	s.mu.Unlock()
	switch {
	case f != nil:
		return reply{status: http.StatusOK, kind: "application/octet-stream", body: f.data}
	case result != nil:
		return reply{status: http.StatusOK, kind: "application/octet-stream", body: result.write(s), results: result}
	}
	return s.refuseBatch(o, noFile(id))
}

func (o openaiBatches) file(s *Server, r *control, id string) reply {
	s.mu.Lock()
	f, result := s.fileLocked(id), s.fetchableLocked(id, r.now)
	s.mu.Unlock()
	switch {
	case f != nil:
		return reply{status: http.StatusOK, body: marshal(o.fileObject(f))}
	case result != nil:
		return reply{status: http.StatusOK, body: marshal(o.resultObject(result, len(result.write(s))))}
	}
	return s.refuseBatch(o, noFile(id))
}

// remove is https://platform.openai.com/docs/api-reference/files/delete
func (o openaiBatches) remove(s *Server, r *control, id string) reply {
	if !s.removeFile(id, r.now) {
		return s.refuseBatch(o, noFile(id))
	}
	return reply{status: http.StatusOK, body: []byte(`{"id":"` + id + `","object":"file","deleted":true}`)}
}

// removeFile deletes a file of requests or of results; it reports false if there is none. A batch that was created from a
// file keeps what it read.
func (s *Server) removeFile(id string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if result := s.fetchableLocked(id, now); result != nil {
		result.deleted = true
		return true
	}
	before := len(s.store.files)
	s.store.files = slices.DeleteFunc(s.store.files, func(f *batchFile) bool { return f.id == id })
	return len(s.store.files) < before
}

// files is https://platform.openai.com/docs/api-reference/files/list, or with a page Mistral's:
// https://github.com/mistralai/client-python/blob/main/src/mistralai/client/models/files_api_routes_list_filesop.py
func (o openaiBatches) files(s *Server, r *control) reply {
	purpose := r.query.Get("purpose")
	all := s.listedFiles(r.now, purpose)
	if r.query.Get("order") != "asc" {
		slices.Reverse(all)
	}
	out := openaiList{Object: "list", Data: []any{}}
	if r.query.Has("page") || r.query.Has("page_size") {
		total := len(all)
		page, _ := strconv.Atoi(r.query.Get("page"))
		size := r.number("page_size", 100, 100)
		all = all[min(len(all), max(page, 0)*size):]
		all, out.Total = all[:min(len(all), size)], &total
	} else {
		all, out.More, _ = window(all, r.query.Get("after"), r.number("limit", 10_000, 10_000), func(f openaiFile) string { return f.ID })
	}
	for _, f := range all {
		out.Data = append(out.Data, f)
	}
	if len(all) > 0 {
		out.First, out.Last = &all[0].ID, &all[len(all)-1].ID
	}
	return reply{status: http.StatusOK, body: marshal(out)}
}

// listedFiles are the files that lists show, oldest first.
func (s *Server) listedFiles(now time.Time, purpose string) (all []openaiFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := func(created time.Time, p string) bool {
		return now.Sub(created) >= s.config.Batches.ListDelay && (purpose == "" || purpose == p)
	}
	for _, f := range s.store.files {
		if !f.gemini && seen(f.created, f.purpose) {
			all = append(all, openaiBatches{}.fileObject(f))
		}
	}
	for _, b := range s.store.batches {
		for _, f := range []*resultFile{b.output, b.errors} {
			if f == nil || b.api.traits().dialect != dialect(openai{}) || s.fetchableLocked(f.id, now) == nil {
				continue
			}
			if object := (openaiBatches{}).resultObject(f, 0); seen(b.ended(), object.Purpose) {
				object.Bytes = len(f.write(s))
				all = append(all, object)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y openaiFile) int { return int(x.Created - y.Created) })
	return all
}
