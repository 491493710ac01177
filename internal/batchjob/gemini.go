package batchjob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
)

// gemini is the Batch API of Gemini (https://ai.google.dev/gemini-api/docs/batch-api, https://ai.google.dev/api/batch-api, and
// https://github.com/googleapis/python-genai: google/genai/files.py, batches.py, _transformers.py). A batch is an operation,
// whose metadata say how it stands.
type gemini struct{ caller }

const (
	geminiFiles   = "/v1beta/files"
	geminiBatches = "/v1beta/batches"
	batchesOf     = "batches/" // begins the name of a batch
	filesOf       = "files/"   // and that of a file

	// geminiType is what a file of requests is called in the guide.
	geminiType = "application/jsonl"

	// geminiPageSize is how many batches or files are asked for at once: the most of files
	// (https://ai.google.dev/api/files#method:-files.list).
	geminiPageSize = "100"

	// geminiWindow is when a batch that still waits or runs expires, says the guide.
	geminiWindow = 48 * time.Hour
)

// Endpoints returns the endpoints. A batch has one model, which is in its address, and one embedding per request.
func (g *gemini) Endpoints() []provider.Endpoint {
	return []provider.Endpoint{provider.GenerateContent, provider.StreamGenerateContent, provider.EmbedContent}
}

// Frame is that of lines.
func (g *gemini) Frame() Frame { return Frame{Between: "\n", Close: "\n"} }

// Upload begins a session, which takes the file in one go.
func (g *gemini) Upload(ctx context.Context, p *File) (string, error) {
	size := strconv.FormatInt(p.Size, 10)
	about := map[string]any{"display_name": p.Tag, "mime_type": geminiType, "size_bytes": p.Size}
	begin := g.with(map[string]string{
		"X-Goog-Upload-Protocol": "resumable", "X-Goog-Upload-Command": "start",
		"X-Goog-Upload-Header-Content-Length": size, "X-Goog-Upload-Header-Content-Type": geminiType,
	})
	a, err := begin.send(ctx, post("/upload"+geminiFiles, map[string]any{"file": about}, nil), nil)
	if err != nil {
		return "", g.refused(a, err, nil)
	}
	path, query, err := uploadPath(a.Header.Get("X-Goog-Upload-Url"))
	if err != nil {
		return "", g.senseless(a, "upload address")
	}
	// The session is known by its address, and needs no key.
	session := g.with(map[string]string{"X-Goog-Upload-Command": "upload, finalize", "X-Goog-Upload-Offset": "0"})
	session.to.Key = ""
	file := call{Control: provider.Control{
		Method: http.MethodPost, Path: path, Query: query, Open: p.Open, Size: p.Size, Type: geminiType,
	}}
	if a, err = session.send(ctx, file, nil); err != nil {
		return "", g.refused(a, err, nil)
	}
	var made struct {
		File geminiFile `json:"file"`
	}
	if err := g.read(a, &made); err != nil {
		return "", err
	}
	if made.File.Name == "" {
		return "", g.senseless(a, "file.name")
	}
	return made.File.Name, nil
}

// with returns a caller that sends some headers besides.
func (g *gemini) with(headers map[string]string) *caller {
	c := g.caller
	c.to.Header = maps.Clone(c.to.Header)
	if c.to.Header == nil {
		c.to.Header = http.Header{}
	}
	for name, value := range headers {
		c.to.Header.Set(name, value)
	}
	return &c
}

// uploadPath returns the path and query of an address to upload to. Its host is not followed: the account's own is, so that no
// answer decides where a file goes, and servers in between are passed.
func uploadPath(address string) (string, url.Values, error) {
	u, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(u.Path, "/upload/") || strings.Contains(u.Path, "..") {
		return "", nil, errors.New("the response has no upload address")
	}
	_, rest, _ := strings.Cut(strings.TrimPrefix(u.Path, "/upload/"), "/") // its version is the account's, too
	return "/upload/v1beta/" + rest, u.Query(), nil
}

// geminiFile is a file, as far as it is of use here.
type geminiFile struct {
	Name        string `json:"name"`
	DisplayName string `json:"displayName"`
	State       string `json:"state"`
}

// geminiPage is a page of a list. An empty one has no members at all, so that it has no error must be seen.
type geminiPage struct {
	Files      []geminiFile `json:"files"`
	Operations []operation  `json:"operations"`
	Next       string       `json:"nextPageToken"`
	Error      any          `json:"error"`
}

// page asks for a page of a list.
func (g *gemini) page(ctx context.Context, path string, query url.Values, out *geminiPage) error {
	a, err := g.send(ctx, get(path, query, nil), nil)
	if err != nil {
		return err
	}
	if err := g.read(a, out); err != nil {
		return err
	}
	if out.Error != nil {
		return g.senseless(a, "list")
	}
	return nil
}

// Create has an uploaded file run.
func (g *gemini) Create(ctx context.Context, p *File, file string) (Batch, error) {
	path, err := provider.GenerateContent.Path(p.Model)
	if err != nil {
		return Batch{}, err
	}
	model, _, _ := strings.Cut(path, ":")
	method := ":batchGenerateContent"
	if p.Endpoint == provider.EmbedContent {
		method = ":asyncBatchEmbedContent"
	}
	batch := map[string]any{"displayName": p.Tag, "inputConfig": map[string]string{"fileName": file}}
	a, err := g.send(ctx, post(model+method, map[string]any{"batch": batch}, nil), nil)
	if err != nil {
		return Batch{}, g.refused(a, err, nil)
	}
	return g.batchIn(a)
}

// batchIn reads an answer that is a batch.
func (g *gemini) batchIn(a provider.Answer) (Batch, error) {
	var got operation
	if err := g.read(a, &got); err != nil {
		return Batch{}, err
	}
	if got.Name == "" {
		return Batch{}, g.senseless(a, "name")
	}
	return g.batch(&got), nil
}

// Find returns the batches of a part's tag among all. Nothing says in which order they come.
func (g *gemini) Find(ctx context.Context, p *File, _ time.Time) (found []Batch, err error) {
	query := url.Values{"pageSize": {geminiPageSize}}
	for range pages {
		var page geminiPage
		if err := g.page(ctx, geminiBatches, query, &page); err != nil {
			return nil, err
		}
		for i := range page.Operations {
			if b := g.batch(&page.Operations[i]); b.Tag == p.Tag && b.ID != "" {
				found = append(found, b)
			}
		}
		if !next(query, "pageToken", page.Next) {
			return found, nil
		}
	}
	return nil, errors.New("the list of batches has too many pages")
}

// Get asks for a batch.
func (g *gemini) Get(ctx context.Context, id string) (Batch, error) {
	a, err := g.send(ctx, get(batchPath(id), nil, ErrUnknown), nil)
	if err != nil {
		return Batch{}, g.denied(ctx, err, ErrUnknown)
	}
	return g.batchIn(a)
}

// batchPath is the path of a batch, whose name has its collection in it.
func batchPath(name string) string {
	return geminiBatches + "/" + segment(strings.TrimPrefix(name, batchesOf))
}

// filePath is the path of a file, whose name is alike.
func filePath(name string) string {
	return geminiFiles + "/" + segment(strings.TrimPrefix(name, filesOf))
}

// Cancel is no error for a batch that has ended, or is about to.
func (g *gemini) Cancel(ctx context.Context, id string) error {
	return g.denied(ctx, g.cancel(ctx, batchPath(id)+":cancel", id, g.Get), ErrUnknown)
}

// Fetch writes a file to w, or the answers that stand in the batch itself, as lines.
func (g *gemini) Fetch(ctx context.Context, result string, w io.Writer) error {
	if !strings.HasPrefix(result, batchesOf) {
		err := g.fetch(ctx, filePath(result)+":download", url.Values{"alt": {"media"}}, w)
		return g.denied(ctx, err, ErrGone)
	}
	var o operation
	if err := g.ask(ctx, get(batchPath(result), nil, ErrGone), &o); err != nil {
		return g.denied(ctx, err, ErrGone)
	}
	for _, line := range o.output().inlined() {
		if _, err := w.Write(append(jsonscan.AppendCompact(nil, line), '\n')); err != nil {
			return err
		}
	}
	return nil
}

// denied finds out what a status of 403 means. Google says it of what does not exist: "You do not have permission to access the
// File … or it may not exist" (https://github.com/googleapis/python-genai/issues/1218). A key that lists the account's batches is
// not what is wrong.
func (g *gemini) denied(ctx context.Context, err, missing error) error {
	refused, ok := errors.AsType[*provider.Error](err)
	if !ok || refused.Status != http.StatusForbidden {
		return err
	}
	if g.ask(ctx, get(geminiBatches, url.Values{"pageSize": {"1"}}, nil), nil) != nil {
		return err
	}
	if call, ok := errors.AsType[*sluice.CallError](err); ok {
		call.Err = fmt.Errorf("%w: %w", missing, call.Err)
	}
	return err
}
