package batch_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/sluice-llm/sluice/batch"
)

// gzipped is a text in two members, which is one stream all the same.
func gzipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	for _, part := range []string{text[:len(text)/2], text[len(text)/2:]} {
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, part); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func zstded(t testing.TB, text string, options ...zstd.EOption) string {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, options...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCompressedInputIsReadAsWhatItHolds(t *testing.T) {
	lines, table := chats(500), "prompt\n"+strings.Repeat("\"x\ny\"\n", 500)
	wantLines, wantIDs := sentBodies(t, batch.Config{Input: writeInput(t, "in.jsonl", lines)})
	wantRows, wantNumbers := sentBodies(t, batch.Config{Input: writeInput(t, "in.csv", table), Model: "m"})
	t.Setenv("TMPDIR", t.TempDir())
	for name, c := range map[string]struct {
		cfg    batch.Config
		bodies []string
		ids    []string
	}{
		"jsonl.gz":          {batch.Config{Input: writeInput(t, "in.jsonl.gz", gzipped(t, lines))}, wantLines, wantIDs},
		"jsonl.zst":         {batch.Config{Input: writeInput(t, "in.jsonl.zst", zstded(t, lines))}, wantLines, wantIDs},
		"csv.gz":            {batch.Config{Input: writeInput(t, "in.csv.gz", gzipped(t, table))}, wantRows, wantNumbers},
		"csv.zst":           {batch.Config{Input: writeInput(t, "in.CSV.ZST", zstded(t, table))}, wantRows, wantNumbers},
		"no name, gzip":     {batch.Config{Input: writeInput(t, "in", gzipped(t, lines))}, wantLines, wantIDs},
		"no name, zstd":     {batch.Config{Input: writeInput(t, "in.csv", zstded(t, table))}, wantRows, wantNumbers},
		"gzip on input":     {batch.Config{Input: "-", Stdin: iotest.OneByteReader(strings.NewReader(gzipped(t, lines)))}, wantLines, wantIDs},
		"zstd on input":     {batch.Config{Input: "-", Stdin: strings.NewReader(zstded(t, table)), Format: batch.FormatCSV}, wantRows, wantNumbers},
		"a text like zstd":  {batch.Config{Input: "-", Stdin: iotest.OneByteReader(strings.NewReader("(\x2f"))}, []string{chatBody("m", "(/", "")}, []string{"1"}},
		"a text of nothing": {batch.Config{Input: "-", Stdin: strings.NewReader("")}, nil, nil},
	} {
		c.cfg.Model = "m"
		if c.bodies == nil {
			continue
		}
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
	text := chats(3000)
	gz, zst := gzipped(t, text), zstded(t, text)
	flip := func(s string, at int) string { return s[:at] + string(s[at]^0x55) + s[at+1:] }
	t.Setenv("TMPDIR", t.TempDir())
	for name, c := range map[string]struct{ file, data, want string }{
		"cut gzip":            {"in.jsonl.gz", gz[:len(gz)/3], fmt.Sprintf("in.jsonl.gz is cut short or damaged: its gzip data breaks off at about byte %d", len(gz)/3)},
		"cut in the checksum": {"in.jsonl.gz", gz[:len(gz)-3], fmt.Sprintf("in.jsonl.gz is cut short or damaged: its gzip data breaks off at about byte %d", len(gz)-3)},
		"cut zstd":            {"in.zst", zst[:len(zst)/2], fmt.Sprintf("in.zst is cut short or damaged: its zstd data breaks off at about byte %d", len(zst)/2)},
		"two bytes":           {"in.gz", gz[:2], "in.gz is cut short or damaged: its gzip data breaks off at about byte 2"},
		"damaged gzip":        {"in.gz", flip(gz, len(gz)/4), "in.gz is damaged: its gzip data is wrong at about byte "},
		"damaged zstd":        {"in.zst", flip(zst, len(zst)/2), "damaged: its zstd data "},
		"a tail":              {"in.gz", gz + "tail of no gzip", "in.gz is damaged: its gzip data is wrong at about byte "},
		"no gzip":             {"in.jsonl.gz", text, "in.jsonl.gz is not compressed by gzip, as its name says"},
		"empty":               {"in.csv.zst", "", "in.csv.zst is not compressed by zstd, as its name says"},
		"a wide window":       {"in.zst", "\x28\xb5\x2f\xfd\x00\x90" + "\x01\x00\x00", "in.zst is damaged: its zstd data is wrong at about byte "},
	} {
		f := newFiles(t, "")
		cfg := f.config(t, &stub{err: errors.New("sent")})
		cfg.Input = writeInput(t, c.file, c.data)
		_, err := batch.Open(cfg)
		if wrong, ok := errors.AsType[*batch.ConfigError](err); !ok || wrong.Field != "Input" || !strings.Contains(err.Error(), filepath.Dir(cfg.Input)+"/in.") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if _, err := os.Stat(f.out); err == nil {
			t.Errorf("%s: there is an output", name)
		}
		if c.data == "" || c.data == text {
			continue
		}
		cfg.Input, cfg.Stdin, cfg.Transport = "-", strings.NewReader(c.data), &stub{}
		b, err := batch.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Run(context.Background())
		_, line := errors.AsType[*batch.InputError](err) // what is wrong may come out before its checksum is seen
		if _, ok := errors.AsType[*batch.DamagedError](err); !ok && !line {
			t.Errorf("%s on standard input: %v", name, err)
		}
		b.Close()
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("%v are left over, %v", left, err)
	}
}

func TestThereIsNoRoomToUnpack(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	_, err := batch.Open(batch.Config{Input: writeInput(t, "in.gz", gzipped(t, chats(1))), Output: "out", Scheduler: newFiles(t, "").config(t, nil).Scheduler})
	if room, ok := errors.AsType[*batch.UnpackError](err); !ok || room.Dir != os.Getenv("TMPDIR") || !strings.Contains(room.Hint(), "TMPDIR") {
		t.Errorf("%v", err)
	}
}

// TestNothingIsLeftOfAnUnpackedInputByAKill: the file is gone from its directory while it is read.
func TestNothingIsLeftOfAnUnpackedInputByAKill(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be taken away")
	}
	t.Setenv("TMPDIR", t.TempDir())
	cfg := newFiles(t, "").config(t, &stub{})
	cfg.Input = writeInput(t, "in.jsonl.gz", gzipped(t, chats(3)))
	b, err := batch.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("%v stand there, %v", left, err)
	}
	if rep, err := b.Run(context.Background()); err != nil || rep.Done != 3 {
		t.Error(rep, err)
	}
}
