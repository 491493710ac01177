package batch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/sim"
)

// TestAPartIsMergedNoSoonerThanItsLinesAreRecorded looks for the files of the part as each of its lines is recorded.
func TestAPartIsMergedNoSoonerThanItsLinesAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lines = 600
		f := newFiles(t, chats(lines))
		cfg, _ := f.viaConfig(t, sim.Config{Batches: sim.Batches{Latency: -1}})
		cfg.Batches.Poll = 10 * time.Millisecond
		var mu sync.Mutex
		most := 0 // files of the part that were seen at once
		cfg.OnResult = func(*work.Result) {
			defer time.Sleep(20 * time.Millisecond) // so that recording takes longer than all else
			mu.Lock()
			defer mu.Unlock()
			files, _ := filepath.Glob(filepath.Join(f.out+batch.BatchesSuffix, "*"))
			text, _ := os.ReadFile(f.out)
			if n := bytes.Count(text, []byte("\n")); len(files) < most && n < lines {
				t.Errorf("the part was merged when %d of its %d lines were recorded", n, lines)
			}
			most = max(most, len(files))
		}
		if rep, err := run(t, cfg); err != nil || rep.Done != lines {
			t.Fatalf("%+v, %v", rep.Report, err)
		}
		if most == 0 {
			t.Error("no file of the part was seen")
		}
	})
}

// TestOfALineInTwoPartsTheLaterOneCounts has lines in two parts that wait, as after a kill between another try and the end of
// the part before. The later one may be split.
func TestOfALineInTwoPartsTheLaterOneCounts(t *testing.T) {
	for _, split := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(t, chats(10))
			cfg, sent := f.viaConfig(t, hour())
			abandon(t, cfg, 10*time.Minute)
			first := filepath.Join(t.TempDir(), "first")
			keep(t, f, first)
			os.RemoveAll(f.out + batch.BatchesSuffix)
			os.Remove(work.StatePath(f.out))
			os.Remove(work.StatePath(f.out) + ".bak")
			abandon(t, cfg, 10*time.Minute)
			later := join(t, f, first)
			cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
				if split && r.Method == http.MethodGet && r.URL.Path == "/v1/batches/"+later {
					return (&stub{status: 200, answer: `{"id":"` + later + `","status":"failed","errors":{"data":[{"code":"too_many_tasks","message":"too many"}]}}`}).RoundTrip(r)
				}
				return sent.RoundTrip(r)
			})
			rep, err := run(t, cfg)
			if err != nil || rep.Done != 10 {
				t.Fatalf("split %v: %+v, %v", split, rep.Report, err)
			}
			made := 2
			if split {
				made = 4
			}
			if n := sent.count(batchMade); n != made {
				t.Errorf("split %v: %d batches were made, want %d", split, n, made)
			}
			for id, by := range f.ways(t) {
				if by == "" || (by == later) == split {
					t.Errorf("split %v: line %s came by batch %q", split, id, by)
				}
			}
			f.tidy(t)
		})
	}
}

// join puts the parts that were kept before those that are there, and returns the id of the last batch.
func join(t *testing.T, f files, kept string) string {
	t.Helper()
	type saved struct {
		Version int               `json:"version"`
		Parts   []json.RawMessage `json:"parts"`
	}
	read := func(name string) (state map[string]json.RawMessage, parts saved) {
		b, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(b, &state)
		}
		if err == nil {
			err = json.Unmarshal(state["batches"], &parts)
		}
		if err != nil {
			t.Fatal(err)
		}
		return state, parts
	}
	_, before := read(filepath.Join(kept, "state"))
	state, now := read(work.StatePath(f.out))
	var last struct{ Batch string }
	err := json.Unmarshal(now.Parts[0], &last)
	now.Parts = append(before.Parts, now.Parts...)
	state["batches"], _ = json.Marshal(now)
	text, _ := json.Marshal(state)
	err = errors.Join(err, os.WriteFile(work.StatePath(f.out), append(bytes.TrimSpace(text), '\n'), 0o644),
		os.CopyFS(f.out+batch.BatchesSuffix, os.DirFS(filepath.Join(kept, "parts"))))
	if err != nil || len(now.Parts) != 2 || last.Batch == "" {
		t.Fatalf("%v: %d parts, the last is %q", err, len(now.Parts), last.Batch)
	}
	return last.Batch
}

// TestPartsThatAreLostTogetherAreNotSentAgain has many parts lost at the same instant, while the feed looks at what is open.
func TestPartsThatAreLostTogetherAreNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lines = 40
		f := newFiles(t, chats(lines))
		cfg, sent := f.viaConfig(t, hour())
		cfg.Provider.Batches.Requests = 1
		abandon(t, cfg, 30*time.Minute)
		made := sent.count(batchMade)
		var mu sync.Mutex
		sends := 0
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost {
				mu.Lock()
				sends++
				mu.Unlock()
			}
			return (&stub{status: 404, answer: `{"error":{"message":"No batch found","type":"invalid_request_error"}}`}).RoundTrip(r)
		})
		for range 10 {
			rep, err := run(t, cfg)
			gone, ok := errors.AsType[*batch.LostError](err)
			if !ok || gone.Lines != made || rep.Left() != lines || sends != 0 {
				t.Fatalf("%d parts: %+v, %v, %d sends", made, rep.Report, err, sends)
			}
		}
	})
}
