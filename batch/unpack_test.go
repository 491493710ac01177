package batch_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/batch"
)

func gzipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCompressedInputIsRunAsWhatItHolds(t *testing.T) {
	lines, table := chats(500), "prompt\n"+strings.Repeat("\"x\ny\"\n", 500)
	wantLines, wantIDs := sentBodies(t, batch.Config{Input: writeInput(t, "in.jsonl", lines)})
	wantRows, wantNumbers := sentBodies(t, batch.Config{Input: writeInput(t, "in.csv", table), Model: "m"})
	t.Setenv("TMPDIR", t.TempDir())
	for name, c := range map[string]struct {
		cfg    batch.Config
		bodies []string
		ids    []string
	}{
		"lines":          {batch.Config{Input: writeInput(t, "in.jsonl.gz", gzipped(t, lines))}, wantLines, wantIDs},
		"a table":        {batch.Config{Input: writeInput(t, "in.csv.gz", gzipped(t, table))}, wantRows, wantNumbers},
		"lines on input": {batch.Config{Input: "-", Stdin: strings.NewReader(gzipped(t, lines))}, wantLines, wantIDs},
	} {
		c.cfg.Model = "m"
		bodies, ids := sentBodies(t, c.cfg)
		if diff := cmp.Diff(c.bodies, bodies) + cmp.Diff(c.ids, ids); diff != "" {
			t.Errorf("%s: %.500s", name, diff)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("%v are left over, %v", left, err)
	}
}

func TestCompressedInputThatIsDamaged(t *testing.T) {
	text := gzipped(t, chats(3000))
	text = text[:len(text)/3]
	f := newFiles(t, "")
	cfg := f.config(t, &stub{})
	cfg.Input = writeInput(t, "in.jsonl.gz", text)
	_, err := batch.Open(cfg)
	if wrong, ok := errors.AsType[*batch.FieldError](err); !ok || wrong.Field != "Input" || !strings.Contains(err.Error(), cfg.Input+" is truncated") {
		t.Errorf("%v, want that it is truncated", err)
	}
	if _, err := os.Stat(f.out); err == nil {
		t.Error("there is an output")
	}
	cfg.Input, cfg.Stdin = "-", strings.NewReader(text)
	b, err := batch.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, err = b.Run(context.Background())
	wrong, ok := errors.AsType[*batch.FieldError](err)
	if _, damaged := errors.AsType[*batch.DamagedError](err); !ok || wrong.Field != "Input" || !damaged {
		t.Errorf("standard input: %v", err)
	}
}

func TestThereIsNoRoomToUnpack(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	_, err := batch.Open(batch.Config{Input: writeInput(t, "in.gz", gzipped(t, chats(1))), Output: "out", Scheduler: newFiles(t, "").config(t, nil).Scheduler})
	_, wrong := errors.AsType[*batch.FieldError](err)
	if _, ok := errors.AsType[*batch.UnpackError](err); !ok || wrong { // it is no fault of what was given
		t.Errorf("%v", err)
	}
}
