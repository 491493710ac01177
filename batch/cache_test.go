package batch_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
)

// cachedRun is a run into a new output with a cache, what it said and how many calls it made.
func cachedRun(t *testing.T, f files, dir string, change func(*batch.Config)) (rep batch.Report, calls int, said string) {
	t.Helper()
	rt := &stub{}
	os.Remove(f.out)
	cfg := f.config(t, rt)
	var log bytes.Buffer
	cfg.Cache, cfg.Logger = dir, slog.New(slog.NewTextHandler(&log, nil))
	if change != nil {
		change(&cfg)
	}
	rep, err := run(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return rep, rt.count(), log.String()
}

// entries returns the files of a cache's answers.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "v1", "??", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAnswersAreKeptForOtherRuns(t *testing.T) {
	f := newFiles(t, chats(20))
	dir := filepath.Join(t.TempDir(), "deep", "cache")
	rep, calls, _ := cachedRun(t, f, dir, nil)
	if calls != 20 || rep.Cached != 0 || rep.CacheHits != 0 || rep.CacheMisses != 20 || len(entries(t, dir)) != 20 {
		t.Fatalf("%d calls, %+v, %d entries", calls, rep, len(entries(t, dir)))
	}
	first := f.results(t)
	f.input(t, strings.ReplaceAll(chats(21), `"custom_id":"`, `"custom_id":"x`))
	rep, calls, _ = cachedRun(t, f, dir, nil)
	if calls != 1 || rep.Done != 21 || rep.Cached != 20 || rep.CacheHits != 20 || rep.CacheMisses != 1 || rep.Finish["stop"] != 21 {
		t.Fatalf("%d calls, %+v", calls, rep)
	}
	for id, r := range f.results(t) {
		was, ok := first[id[1:]]
		if !ok {
			continue
		}
		s := r.Sluice
		if string(r.Response.Body) != string(was.Response.Body) || r.Response.RequestID != was.Response.RequestID || r.Response.Status != 200 {
			t.Errorf("%s has %+v, and had %+v", id, r.Response, was.Response)
		}
		if !s.Cached || s.Attempts != 0 || s.CostUSD == nil || *s.CostUSD != 0 || s.InputTokens != 0 || s.OutputTokens != 0 {
			t.Errorf("%s: %+v", id, s)
		}
	}
	err := filepath.WalkDir(filepath.Dir(dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestWhatAnAnswerDependsOn(t *testing.T) {
	f := newFiles(t, chats(1))
	dir := filepath.Join(t.TempDir(), "cache")
	same := func(*batch.Config) {}
	for i, c := range []struct {
		name   string
		change func(*batch.Config)
		calls  int
	}{
		{"the first", same, 1},
		{"the same", same, 0},
		{"another address", func(c *batch.Config) { c.BaseURL = "http://127.0.0.1:1/v1" }, 1},
		{"that again", func(c *batch.Config) { c.BaseURL = "http://127.0.0.1:1/v1" }, 0},
		{"another name of the provider", func(c *batch.Config) { c.Provider.Name = "other" }, 1},
		{"a header", func(c *batch.Config) { c.ExtraHeader = map[string][]string{"X-A": {sentinelKey}} }, 0},
		{"without the cache", func(c *batch.Config) { c.Cache = "" }, 1},
	} {
		if _, calls, said := cachedRun(t, f, dir, c.change); calls != c.calls || said != "" {
			t.Errorf("%d, %s: %d calls, want %d; it said %s", i, c.name, calls, c.calls, said)
		}
	}
	f.input(t, strings.Replace(chats(1), `"body":{`, `"body": { `, 1))
	if _, calls, _ := cachedRun(t, f, dir, nil); calls != 0 {
		t.Error("other spaces made it another request")
	}
	f.input(t, strings.Replace(chats(1), `"model":"m"`, `"model":"n"`, 1))
	if _, calls, _ := cachedRun(t, f, dir, nil); calls != 1 {
		t.Error("another model had its answer")
	}
}

func TestHitsAreCheckedLikeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(3))
		dir := filepath.Join(t.TempDir(), "cache")
		refuse := func(c *batch.Config) {
			c.Check = func(id string, _ provider.Endpoint, _ []byte) error {
				if id == "2" {
					return errors.New("refused")
				}
				return nil
			}
		}
		rep, _, _ := cachedRun(t, f, dir, refuse)
		if rep.Done != 2 || rep.Failed != 1 || len(entries(t, dir)) != 2 {
			t.Fatalf("%+v, %d entries: only what was accepted is kept", rep, len(entries(t, dir)))
		}
		if rep, _, _ := cachedRun(t, f, dir, nil); rep.Cached != 2 || rep.Done != 3 {
			t.Fatalf("%+v", rep)
		}
		rep, calls, _ := cachedRun(t, f, dir, refuse)
		if rep.Cached != 2 || rep.Failed != 1 || calls == 0 {
			t.Errorf("%+v, %d calls: a hit that is refused is a miss", rep, calls)
		}
	})
}

func TestDamagedEntriesAreSaidOnceAndReplaced(t *testing.T) {
	f := newFiles(t, chats(12))
	dir := filepath.Join(t.TempDir(), "cache")
	cachedRun(t, f, dir, nil)
	all := entries(t, dir)
	damage := []func(b []byte) []byte{
		func([]byte) []byte { return nil },
		func(b []byte) []byte { return b[:len(b)/2] },
		func(b []byte) []byte { return append(b, 'x') },
		func(b []byte) []byte { b[len(b)-3] ^= 1; return b },
		func(b []byte) []byte { return bytes.Replace(b, []byte(`"status":200`), []byte(`"status":201`), 1) },
		func([]byte) []byte { return make([]byte, 1000) },                      // as a power cut leaves it
		func([]byte) []byte { b, _ := os.ReadFile(all[len(all)-1]); return b }, // another's answer
	}
	for i, spoil := range damage {
		b, err := os.ReadFile(all[i])
		if err == nil {
			err = os.WriteFile(all[i], spoil(b), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rep, calls, said := cachedRun(t, f, dir, nil)
	if calls != len(damage) || rep.Done != 12 || rep.Cached != 12-len(damage) || strings.Count(said, "cache") != 2 || strings.Count(said, "\n") != 1 {
		t.Errorf("%d calls, %+v, said %q", calls, rep, said)
	}
	if rep, calls, said := cachedRun(t, f, dir, nil); calls != 0 || rep.Cached != 12 || said != "" {
		t.Errorf("then %d calls, %+v, said %q", calls, rep, said)
	}
}

func TestACacheThatCannotBeWrittenIsSaidOnce(t *testing.T) {
	f := newFiles(t, chats(12))
	dir := filepath.Join(t.TempDir(), "cache")
	cachedRun(t, f, dir, func(c *batch.Config) { c.Limit = 1 })
	for i := range 256 { // where directories should be
		_ = os.WriteFile(filepath.Join(dir, "v1", fmt.Sprintf("%02x", i)), nil, 0o600)
	}
	rep, calls, said := cachedRun(t, f, dir, nil)
	if rep.Done != 12 || rep.Cached != 1 || calls != 11 || strings.Count(said, "cannot be saved") != 1 {
		t.Errorf("%+v, %d calls, said %q", rep, calls, said)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "v1", ".tmp-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestADirectoryThatCannotBeACacheIsRefused(t *testing.T) {
	file := writeInput(t, "file", "x")
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		rt := &stub{}
		f := newFiles(t, chats(1))
		cfg := f.config(t, rt)
		cfg.Cache = dir
		_, err := run(t, cfg)
		if wrong, ok := errors.AsType[*batch.FieldError](err); !ok || wrong.Field != "Cache" || rt.count() > 0 {
			t.Errorf("error %v, %d calls", err, rt.count())
		}
		if _, err := os.Stat(f.out); !errors.Is(err, fs.ErrNotExist) {
			t.Error("there is an output")
		}
	}
}

func TestOtherFilesBesideACacheAreLeftAlone(t *testing.T) {
	f := newFiles(t, chats(1))
	other := writeInput(t, "version", "3.1.4")
	for want := 1; want >= 0; want-- {
		if _, calls, said := cachedRun(t, f, filepath.Dir(other), nil); calls != want || said != "" {
			t.Errorf("%d calls, want %d; it said %s", calls, want, said)
		}
	}
	if b, err := os.ReadFile(other); string(b) != "3.1.4" {
		t.Errorf("%s, %v", b, err)
	}
}

func TestSeveralRunsShareACache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	var runs sync.WaitGroup
	for range 6 {
		f := newFiles(t, chats(60))
		cfg := f.config(t, &stub{})
		cfg.Cache = dir
		runs.Go(func() {
			b, err := batch.Open(cfg)
			if err != nil {
				t.Error(err)
				return
			}
			defer b.Close()
			if rep, err := b.Run(t.Context()); err != nil || rep.Done != 60 {
				t.Errorf("%+v, %v", rep, err)
			}
		})
	}
	runs.Wait()
	if n := len(entries(t, dir)); n != 60 {
		t.Errorf("%d entries, want 60", n)
	}
	f := newFiles(t, chats(60))
	if rep, calls, said := cachedRun(t, f, dir, nil); rep.Cached != 60 || calls != 0 || said != "" {
		t.Errorf("%+v, %d calls, said %q", rep, calls, said)
	}
	left, _ := os.ReadDir(filepath.Join(dir, "v1"))
	if slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".tmp") }) {
		t.Errorf("left behind: %v", left)
	}
}
