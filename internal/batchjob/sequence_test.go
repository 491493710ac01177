package batchjob_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/provider"
)

// recording is what an official SDK sent, and was answered: testdata/sequence/record.py made it.
type recording struct {
	SDK   struct{ Name, Version string }
	Steps []*step
}

// step is one request of a sequence.
type step struct {
	Step      string            `json:"step"`
	Method    string            `json:"method"`
	Path      string            `json:"path"`
	Query     map[string]string `json:"query"`
	Headers   map[string]string `json:"headers"`
	JSON      any               `json:"json"`
	Lines     []any             `json:"lines"`
	Multipart []formPart        `json:"multipart"`
	Answer    struct {
		Headers map[string]string
		Body    string
	} `json:"answer"`
}

type formPart struct {
	Name        string `json:"name"`
	Value       string `json:"value"`
	Filename    string `json:"filename"`
	ContentType string `json:"content_type"`
	Lines       []any  `json:"lines"`
}

// fields returns all that a step says, by where it stands.
func (s *step) fields() map[string]string {
	all := map[string]string{"method": s.Method, "path": s.Path}
	for k, v := range s.Query {
		all["query."+k] = v
	}
	for k, v := range s.Headers {
		all["header."+k] = v
	}
	flatten(all, "json", s.JSON)
	flatten(all, "lines", any(s.Lines))
	for _, p := range s.Multipart {
		at := "form." + p.Name
		for k, v := range map[string]string{".value": p.Value, ".filename": p.Filename, ".content_type": p.ContentType} {
			if v != "" {
				all[at+k] = v
			}
		}
		flatten(all, at, any(p.Lines))
	}
	return all
}

func flatten(all map[string]string, at string, v any) {
	switch v := v.(type) {
	case nil:
	case map[string]any:
		for k, member := range v {
			flatten(all, at+"."+k, member)
		}
	case []any:
		for i, member := range v {
			flatten(all, fmt.Sprintf("%s[%d]", at, i), member)
		}
	default:
		all[at] = fmt.Sprint(v)
	}
}

// difference is one between what an SDK sends and what we send. "" is nothing.
type difference struct {
	Steps        string // with spaces between
	Field        string
	Theirs, Ours string
	Why          string
}

// sequenced is how a recording is compared with.
type sequenced struct {
	File     string
	Provider string
	Version  string // that stands at the end of the base address
	Model    string
	Endpoint provider.Endpoint
	Body     string
	Skipped  map[string]string // their steps that we do not take, by name and number, and why
	Differ   []difference
}

const (
	anyAnswer = "what it accepts is whatever comes"
	noBody    = "what has no body has no type"
	sameType  = "the type says what is in the file"
)

var sequences = []sequenced{
	{
		File: "openai", Provider: "openai", Version: "/v1", Model: "gpt-4o-mini", Endpoint: provider.ChatCompletions,
		Body: `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}],"stream":true}`,
		Differ: []difference{
			{"upload create find get cancel", "header.accept", "application/json", "", anyAnswer},
			{"fetch", "header.accept", "application/binary", "", anyAnswer},
			{"cancel", "header.content-type", "application/json", "", noBody},
			{"upload", "form.file.content_type", "application/octet-stream", "application/jsonl", sameType},
		},
	},
	{
		File: "anthropic-2023-06-01", Provider: "anthropic", Model: "claude-haiku-4-5", Endpoint: provider.Messages,
		Body: `{"model":"claude-haiku-4-5","max_tokens":16,"messages":[{"role":"user","content":"hi"}],"stream":true}`,
		Skipped: map[string]string{
			"fetch 1": "the address of the results is made of the id: an answer does not say where the key goes",
		},
		Differ: anthropicDiffers,
	},
	{
		File: "anthropic", Provider: "anthropic", Model: "claude-haiku-4-5", Endpoint: provider.Messages,
		Body: `{"model":"claude-haiku-4-5","max_tokens":16,"messages":[{"role":"user","content":"hi"}],"stream":true}`,
		Skipped: map[string]string{
			"fetch 1": "the address of the results is made of the id: an answer does not say where the key goes",
		},
		// The newer version refuses sampling parameters (https://platform.claude.com/docs/en/api/versioning): a line that is
		// answered live would not be answered in a batch.
		Differ: append([]difference{
			{"create find get cancel fetch", "header.anthropic-version", "2026-10-21", "2023-06-01", "the version of live calls"},
			{"create find get cancel fetch", "header.authorization", "Bearer KEY", "", "x-api-key is as good"},
			{"create find get cancel fetch", "header.x-api-key", "", "KEY", "x-api-key is as good"},
		}, anthropicDiffers...),
	},
	{
		// The version is the one that the SDK takes for itself. The provider's row has v1beta, as the guide does.
		File: "gemini", Provider: "gemini", Version: "/v1", Model: "gemini-2.5-flash", Endpoint: provider.GenerateContent,
		Body: `{"contents":[{"parts":[{"text":"hi"}]}]}`,
		Differ: []difference{
			{"upload create find get cancel fetch create_embeddings", "header.accept", "*/*", "", anyAnswer},
			{"find get cancel fetch", "header.content-type", "application/json", "", noBody},
			{"upload2", "header.accept", "*/*", "", anyAnswer},
			{"upload2", "header.content-type", "application/json", "application/jsonl", sameType},
			{"upload2", "header.x-goog-upload-protocol", "resumable", "", "it is said when the session begins, as the guide has it"},
			{"upload2", "header.x-goog-upload-header-content-type", "application/jsonl", "", "it is said when the session begins"},
			{"upload2", "header.x-goog-upload-header-content-length", "134", "", "it is said when the session begins"},
			{"create_embeddings", "json.batch.inputConfig.file_name", "files/f1", "", "both spellings are one member of protobuf's JSON"},
			{"create_embeddings", "json.batch.inputConfig.fileName", "", "files/f1", "both spellings are one member of protobuf's JSON"},
		},
	},
}

var anthropicDiffers = []difference{
	{"create find get cancel", "header.accept", "application/json", "", anyAnswer},
	{"fetch", "header.accept", "application/binary", "", anyAnswer},
	{"cancel", "header.content-type", "application/json", "", noBody},
	{"create", "json.requests[0].custom_id", "row-1", tag + "_row-1", "batches bear no name: the tag says whose they are"},
	{"create", "json.requests[1].custom_id", "row-2", tag + "_row-2", "batches bear no name: the tag says whose they are"},
}

// TestCallsAreThoseOfTheSDKs: what we send is what the official SDKs send, but for what is named here.
func TestCallsAreThoseOfTheSDKs(t *testing.T) {
	for _, of := range sequences {
		t.Run(of.File, func(t *testing.T) { of.compare(t) })
	}
}

func (of *sequenced) compare(t *testing.T) {
	var theirs recording
	text, err := os.ReadFile(filepath.Join("testdata", "sequence", of.File+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &theirs); err != nil {
		t.Fatal(err)
	}
	all, numbered, wanted := map[string]int{}, map[string]int{}, map[string]*step{}
	skipped := maps.Clone(of.Skipped)
	for _, s := range theirs.Steps {
		all[s.Step]++
		if name := fmt.Sprint(s.Step, " ", all[s.Step]); skipped[name] != "" {
			delete(skipped, name)
			continue
		}
		numbered[s.Step]++
		wanted[stepName(s.Step, numbered[s.Step])] = s
	}
	got := of.drive(t, wanted)
	if len(skipped) > 0 {
		t.Errorf("%s has no steps %v", of.File, skipped)
	}
	allowed := map[string]difference{}
	for _, d := range of.Differ {
		for name := range strings.FieldsSeq(d.Steps) {
			allowed[name+" "+d.Field] = d
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if got[name] == nil {
			t.Errorf("%s: we do not send it", name)
			continue
		}
		their, our := wanted[name].fields(), got[name].fields()
		both := maps.Clone(their)
		maps.Copy(both, our)
		for _, field := range slices.Sorted(maps.Keys(both)) {
			at := name + " " + field
			d, ok := allowed[at]
			delete(allowed, at)
			switch {
			case their[field] == our[field]:
				if ok {
					t.Errorf("%s: no difference any more", at)
				}
			case !ok || d.Theirs != their[field] || d.Ours != our[field]:
				t.Errorf("%s: %s %s sends %q, we send %q", at, theirs.SDK.Name, theirs.SDK.Version, their[field], our[field])
			}
		}
	}
	for at := range allowed {
		t.Errorf("%s: it is nowhere", at)
	}
}

func stepName(name string, number int) string {
	if number == 1 {
		return name
	}
	return fmt.Sprint(name, number)
}

// drive takes all steps with our client, against a server that answers as the SDK was answered, and returns what was sent.
func (of *sequenced) drive(t *testing.T, wanted map[string]*step) map[string]*step {
	var now string
	got, numbered := map[string]*step{}, map[string]int{}
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		numbered[now]++
		name := stepName(now, numbered[now])
		got[name] = received(t, now, r)
		s := wanted[name]
		if s == nil {
			t.Errorf("%s: %s %s: the SDK does not send it", name, r.Method, r.URL)
			http.Error(w, "{}", http.StatusTeapot)
			return
		}
		for k, v := range s.Answer.Headers {
			w.Header().Set(k, strings.ReplaceAll(v, "BASE", server.URL))
		}
		io.WriteString(w, strings.ReplaceAll(s.Answer.Body, "BASE", server.URL))
	}))
	defer server.Close()
	p, ok := provider.Lookup(of.Provider)
	if !ok {
		t.Fatal("no such provider")
	}
	api, err := batchjob.NewAPI(p, provider.Target{BaseURL: server.URL + of.Version, Key: sentinel}, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	begin := func(name string) bool { now = name; return wanted[name] != nil }
	of.steps(t, api, wanted, begin)
	return got
}

// steps takes the steps.
func (of *sequenced) steps(t *testing.T, api batchjob.API, wanted map[string]*step, begin func(string) bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	part, file := of.part(api), ""
	if begin("upload") {
		var err error
		file, err = api.Upload(ctx, part)
		check(err)
	}
	begin("create")
	b, err := api.Create(ctx, part, file)
	check(err)
	begin("find")
	found, err := api.Find(ctx, part, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if check(err); len(found) != 1 || found[0].ID != b.ID {
		t.Errorf("found %+v, want %q", found, b.ID)
	}
	begin("get")
	b, err = api.Get(ctx, b.ID)
	if check(err); !b.Status.Ended() || b.Requests != part.Requests || len(b.Results) != 1 {
		t.Fatalf("got %+v, which has not ended with results of %d requests", b, part.Requests)
	}
	begin("cancel")
	check(api.Cancel(ctx, b.ID))
	begin("fetch")
	var results bytes.Buffer
	check(api.Fetch(ctx, b.Results[0], &results))
	if want := wanted["fetch"].Answer.Body; results.String() != want {
		t.Errorf("fetched %q, want %q", results.String(), want)
	}
	if begin("create_embeddings") {
		part.Model, part.Endpoint = "gemini-embedding-001", provider.EmbedContent
		_, err := api.Create(ctx, part, file)
		check(err)
	}
}

// part is one of two requests.
func (of *sequenced) part(api batchjob.API) *batchjob.File {
	frame := api.Frame()
	text := []byte(frame.Open)
	for i, id := range []string{"row-1", "row-2"} {
		if i > 0 {
			text = append(text, frame.Between...)
		}
		if of.Endpoint == provider.Messages {
			id = tag + "_" + id
		}
		text = api.AppendRequest(text, id, of.Endpoint, []byte(of.Body))
	}
	text = append(text, frame.Close...)
	return &batchjob.File{
		Tag: tag, Model: of.Model, Endpoint: of.Endpoint, Requests: 2, Size: int64(len(text)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
	}
}

// kept are the headers that recordings have.
var kept = []string{"authorization", "x-api-key", "x-goog-api-key", "anthropic-version", "anthropic-beta", "content-type", "accept",
	"idempotency-key", "range"}

// received reads a request into a step, as record.py does.
func received(t *testing.T, name string, r *http.Request) *step {
	s := &step{Step: name, Method: r.Method, Path: r.URL.Path, Query: map[string]string{}, Headers: map[string]string{}}
	for k, v := range r.URL.Query() {
		s.Query[k] = v[0]
	}
	for k, v := range r.Header {
		if k = strings.ToLower(k); slices.Contains(kept, k) || strings.HasPrefix(k, "x-goog-upload") {
			s.Headers[k] = strings.ReplaceAll(v[0], sentinel, "KEY")
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case kind == "multipart/form-data":
		s.Headers["content-type"] = kind
		form := multipart.NewReader(bytes.NewReader(body), params["boundary"])
		for {
			p, err := form.NextPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Error(err)
				break
			}
			content, _ := io.ReadAll(p)
			part := formPart{Name: p.FormName(), Filename: p.FileName()}
			if part.Filename == "" {
				part.Value = string(content)
			} else {
				part.ContentType, part.Lines = p.Header.Get("Content-Type"), lines(t, content)
			}
			s.Multipart = append(s.Multipart, part)
		}
	case len(body) == 0:
	case kind == "application/json":
		if err := json.Unmarshal(body, &s.JSON); err != nil {
			t.Error(err)
		}
	default:
		s.Lines = lines(t, body)
	}
	return s
}

func lines(t *testing.T, text []byte) (all []any) {
	for line := range bytes.Lines(text) {
		var v any
		if err := json.Unmarshal(line, &v); err != nil {
			t.Errorf("line %q: %v", line, err)
		}
		all = append(all, v)
	}
	return all
}
