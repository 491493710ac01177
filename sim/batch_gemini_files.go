package sim

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// upload is one of Gemini's that has begun.
type upload struct {
	file *batchFile
	data []byte
}

// serveFiles answers for files: https://ai.google.dev/api/files. They are downloaded from two addresses: the guide's begins with
// /download, and the SDK's does not (https://github.com/googleapis/python-genai/blob/v3.4.0/google/genai/files.py, download).
func (g geminiBatches) serveFiles(s *Server, r *control) reply {
	if r.path == "/upload/v1beta/files" {
		return g.serveUpload(s, r)
	}
	name := strings.TrimPrefix(strings.TrimPrefix(r.path, "/download"), "/v1beta/")
	if file, ok := strings.CutSuffix(name, ":download"); ok {
		s.countBatch("content", "")
		return g.download(s, r, file)
	}
	switch {
	case name == "files" && r.method == http.MethodGet:
		s.countBatch("files", "")
		return g.files(s, r)
	case r.method == http.MethodGet:
		s.countBatch("file", "")
		return g.file(s, r, name)
	case r.method == http.MethodDelete:
		s.countBatch("remove", "")
		if !s.removeFile(name, r.now) {
			return g.noFile(s, name)
		}
		return reply{status: http.StatusOK, body: []byte("{}")}
	}
	return g.missing(s)
}

// noFile is https://github.com/googleapis/python-genai/issues/1218: the status does not tell whether there is one.
func (g geminiBatches) noFile(s *Server, name string) reply {
	return s.refuseBatch(g, &apiProblem{status: http.StatusForbidden,
		message: "You do not have permission to access the File " + strings.TrimPrefix(name, "files/") + " or it may not exist."})
}

// continues reports whether the request goes on with an upload, whose address is all the key it needs.
// https://github.com/googleapis/python-genai/blob/main/google/genai/_api_client.py (_upload_fd)
func (c *control) continues() bool {
	return c.path == "/upload/v1beta/files" && c.query.Has("upload_id")
}

// serveUpload is https://ai.google.dev/gemini-api/docs/files#rest and
// https://github.com/googleapis/python-genai/blob/main/google/genai/_extra_utils.py (prepare_resumable_upload)
func (g geminiBatches) serveUpload(s *Server, r *control) reply {
	command := strings.ReplaceAll(r.header.Get("X-Goog-Upload-Command"), " ", "")
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.header.Get("X-Goog-Upload-Protocol") == "resumable" && command == "start" {
		s.store.counts.Calls["upload"]++
		return g.begin(s, r)
	}
	up := s.store.uploads[r.query.Get("upload_id")]
	offset, _ := strconv.Atoi(r.header.Get("X-Goog-Upload-Offset"))
	switch {
	case up == nil:
		return reply{status: http.StatusNotFound, body: g.refusal(noEntity())}
	case command == "query":
		return reply{status: http.StatusOK, header: map[string]string{"X-Goog-Upload-Status": "active",
			"X-Goog-Upload-Size-Received": strconv.Itoa(len(up.data))}}
	case s.config.Batches.MaxBytes > 0 && offset+len(r.body) > s.config.Batches.MaxBytes:
		return reply{status: http.StatusBadRequest, body: g.refusal(&apiProblem{status: http.StatusBadRequest,
			message: "The file is larger than the maximum of " + strconv.Itoa(s.config.Batches.MaxBytes) + " bytes."})}
	case !strings.HasPrefix(command, "upload") && command != "finalize", offset != len(up.data):
		return reply{status: http.StatusBadRequest, body: g.refusal(&apiProblem{status: http.StatusBadRequest,
			message: "The upload is at another offset."})}
	}
	if len(up.data) == 0 {
		up.data = r.body
	} else {
		up.data = append(up.data, r.body...)
	}
	if !strings.Contains(command, "finalize") {
		return reply{status: http.StatusOK, header: map[string]string{"X-Goog-Upload-Status": "active"}}
	}
	up.file.data = up.data
	delete(s.store.uploads, r.query.Get("upload_id"))
	s.storeLocked(up.file)
	return reply{status: http.StatusOK, header: map[string]string{"X-Goog-Upload-Status": "final"},
		body: marshal(map[string]any{"file": g.fileObject(up.file, r)}), lost: s.droppedLocked(up.file.hash)}
}

// begin says where to send the file.
func (geminiBatches) begin(s *Server, r *control) reply {
	var ask struct {
		File struct {
			Name  string `json:"displayName"`
			Name2 string `json:"display_name"`
			Mime  string `json:"mimeType"`
		} `json:"file"`
	}
	r.decode(&ask) // what is not understood is not there
	id := s.nextIDLocked()
	s.store.uploads[id] = &upload{file: &batchFile{id: "files/" + id, name: cmp.Or(ask.File.Name, ask.File.Name2), gemini: true,
		mime: cmp.Or(r.header.Get("X-Goog-Upload-Header-Content-Type"), ask.File.Mime, "application/jsonl")}}
	return reply{status: http.StatusOK, header: map[string]string{"X-Goog-Upload-Status": "active",
		"X-Goog-Upload-Url": r.base + "/upload/v1beta/files?upload_id=" + id + "&upload_protocol=resumable"}}
}

// geminiFile is https://ai.google.dev/api/files#File
type geminiFile struct {
	Name     string `json:"name"`
	Display  string `json:"displayName,omitempty"`
	Mime     string `json:"mimeType"`
	Size     string `json:"sizeBytes,omitempty"`
	Created  string `json:"createTime"`
	Updated  string `json:"updateTime"`
	Expires  string `json:"expirationTime,omitempty"`
	Sum      string `json:"sha256Hash,omitempty"`
	URI      string `json:"uri"`
	Download string `json:"downloadUri,omitempty"`
	State    string `json:"state"`
	Source   string `json:"source"`
}

// geminiFileLife is https://ai.google.dev/gemini-api/docs/files
const geminiFileLife = 48 * time.Hour

func (geminiBatches) fileObject(f *batchFile, r *control) geminiFile {
	sum := sha256.Sum256(f.data)
	return geminiFile{Name: f.id, Display: f.name, Mime: f.mime, Size: strconv.Itoa(len(f.data)), Created: instant(f.created),
		Updated: instant(f.created), Expires: instant(f.created.Add(geminiFileLife)), Sum: base64.StdEncoding.EncodeToString(sum[:]),
		URI: r.base + "/v1beta/" + f.id, State: "ACTIVE", Source: "UPLOADED"}
}

// file tells of one that was uploaded or of results.
func (g geminiBatches) file(s *Server, r *control, name string) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.fileLocked(name); f != nil {
		return reply{status: http.StatusOK, body: marshal(g.fileObject(f, r))}
	}
	if f := s.fetchableLocked(name, r.now); f != nil {
		at := instant(f.batch.ended())
		return reply{status: http.StatusOK, body: marshal(geminiFile{Name: name, Mime: "application/jsonl", Created: at, Updated: at,
			URI: r.base + "/v1beta/" + name, Download: r.base + "/download/v1beta/" + name + ":download?alt=media", State: "ACTIVE", Source: "GENERATED"})}
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	return g.noFile(s, name)
}

// download is https://ai.google.dev/gemini-api/docs/batch-api#retrieve-results; what was uploaded cannot be downloaded.
func (g geminiBatches) download(s *Server, r *control, name string) reply {
	s.mu.Lock()
	f, uploaded := s.fetchableLocked(name, r.now), s.fileLocked(name) != nil
	lost := s.store.results[name] != nil
	s.mu.Unlock()
	switch {
	case f != nil:
		return reply{status: http.StatusOK, kind: "application/octet-stream", body: f.write(s), results: f}
	case uploaded:
		return s.refuseBatch(g, &apiProblem{status: http.StatusBadRequest, message: "Only generated files can be downloaded."})
	case lost:
		return g.missing(s)
	}
	return g.noFile(s, name)
}

// files is https://ai.google.dev/api/files#method:-files.list
func (g geminiBatches) files(s *Server, r *control) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*batchFile
	for _, f := range slices.Backward(s.store.files) {
		if f.gemini && r.now.Sub(f.created) >= s.config.Batches.ListDelay {
			all = append(all, f)
		}
	}
	page, more, _ := window(all, r.query.Get("pageToken"), r.number("pageSize", 10, 100), func(f *batchFile) string { return f.id })
	var out struct {
		Files []geminiFile `json:"files,omitempty"`
		Next  string       `json:"nextPageToken,omitempty"`
	}
	for _, f := range page {
		out.Files = append(out.Files, g.fileObject(f, r))
	}
	if more {
		out.Next = page[len(page)-1].id
	}
	return reply{status: http.StatusOK, body: marshal(out)}
}
