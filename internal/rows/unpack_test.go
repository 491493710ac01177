package rows_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sluice-llm/sluice/internal/rows"
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

func TestCompressedInputIsReadAsWhatItHolds(t *testing.T) {
	lines, table := strings.Repeat("{\"a\":1}\n", 5000), "prompt\n"+strings.Repeat("\"x\ny\"\n", 5000)
	wantLines, _, err := readFile(write(t, "in.jsonl", lines), nil)
	wantRows, _, wrong := readFile(write(t, "in.csv", table), nil)
	if err != nil || wrong != nil || len(wantLines) != 5000 || len(wantRows) != 5000 {
		t.Fatal(len(wantLines), err, len(wantRows), wrong)
	}
	t.Setenv("TMPDIR", t.TempDir())
	for name, c := range map[string]struct {
		name, text string
		want       []row
	}{
		"jsonl.gz":      {"in.jsonl.gz", gzipped(t, lines), wantLines},
		"csv.gz":        {"in.CSV.GZ", gzipped(t, table), wantRows},
		"no name, gzip": {"in", gzipped(t, lines), wantLines},
	} {
		got, again, err := readFile(write(t, c.name, c.text), nil)
		if err != nil || !slices.Equal(got, c.want) || !slices.Equal(again, c.want) {
			t.Errorf("%s: %d rows, and %d again, %v", name, len(got), len(again), err)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("%v are left over, %v", left, err)
	}
	for name, c := range map[string]struct {
		stdin io.Reader
		want  []row
	}{
		"gzip":                {iotest.OneByteReader(strings.NewReader(gzipped(t, lines))), wantLines},
		"a text like gzip":    {strings.NewReader("\x1f"), []row{{Line: 1, Text: "\x1f"}}},
		"a text of nothing":   {strings.NewReader(""), nil},
		"a text that is gzip": {strings.NewReader(gzipped(t, "xy")), []row{{Line: 1, Text: "xy"}}},
	} {
		got, err := all(rows.Stream(t.Context(), c.stdin))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s as it comes: %d rows, want %d, %v", name, len(got), len(c.want), err)
		}
	}
}

func TestCompressedInputThatIsDamaged(t *testing.T) {
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "{\"prompt\":\"What is %d?\"}\n", i*i)
	}
	text := b.String()
	gz := gzipped(t, text)
	flip := func(s string, at int) string { return s[:at] + string(s[at]^0x55) + s[at+1:] }
	t.Setenv("TMPDIR", t.TempDir())
	for name, c := range map[string]struct{ file, data, want string }{
		"cut gzip":            {"in.jsonl.gz", gz[:len(gz)/3], fmt.Sprintf("in.jsonl.gz is truncated or damaged: its gzip data ends at about byte %d", len(gz)/3)},
		"cut in the checksum": {"in.jsonl.gz", gz[:len(gz)-3], fmt.Sprintf("in.jsonl.gz is truncated or damaged: its gzip data ends at about byte %d", len(gz)-3)},
		"two bytes":           {"in.gz", gz[:2], "in.gz is truncated or damaged: its gzip data ends at about byte 2"},
		"damaged gzip":        {"in.gz", flip(gz, len(gz)/4), "in.gz is damaged: its gzip data is invalid at about byte "},
		"a tail":              {"in.gz", gz + "tail of no gzip", "in.gz is damaged: its gzip data is invalid at about byte "},
		"no gzip":             {"in.jsonl.gz", text, "in.jsonl.gz is not compressed with gzip, although its name ends in .gz"},
		"empty":               {"in.csv.gz", "", "in.csv.gz is not compressed with gzip, although its name ends in .gz"},
	} {
		path := write(t, c.file, c.data)
		_, _, err := readFile(path, nil)
		if err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if c.data == "" || c.data == text {
			continue
		}
		damaged, ok := errors.AsType[*rows.DamagedError](err)
		if !ok || damaged.Path != path || damaged.Hint() == "" {
			t.Errorf("%s: %+v", name, damaged)
		}
		_, err = all(rows.Stream(t.Context(), strings.NewReader(c.data)))
		if _, ok := errors.AsType[*rows.DamagedError](err); !ok || !strings.HasPrefix(err.Error(), "standard input is ") {
			t.Errorf("%s on standard input: %v", name, err)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("%v are left over, %v", left, err)
	}
}

func TestThereIsNoRoomToUnpack(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	path := write(t, "in.gz", gzipped(t, "{}\n"))
	_, err := rows.Open(path, nil)
	room, ok := errors.AsType[*rows.UnpackError](err)
	if !ok || room.Path != path || room.Dir != os.Getenv("TMPDIR") || !strings.Contains(room.Hint(), "TMPDIR") || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestNothingIsLeftOfAnUnpackedInputByAKill: the file is gone from its directory while it is read.
func TestNothingIsLeftOfAnUnpackedInputByAKill(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be taken away")
	}
	t.Setenv("TMPDIR", t.TempDir())
	path := write(t, "in.jsonl.gz", gzipped(t, "1\n2\n3\n"))
	f, err := rows.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("%v stand there, %v", left, err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if got, err := all(f.Rows()); err != nil || len(got) != 3 || !f.Is(path) || f.Changed() {
		t.Errorf("%v, %v", got, err)
	}
}
