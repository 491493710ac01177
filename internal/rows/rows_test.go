package rows_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
)

// row is one as tests compare it.
type row struct {
	Line   int
	Offset int64
	Text   string
	Bad    string
}

func asRow(r rows.Row) row {
	out := row{Line: r.Number, Offset: r.Offset, Text: string(r.Bytes)}
	if r.Bad != nil {
		out.Bad = r.Bad.Text
	}
	return out
}

// all reads rows to their end.
func all(seq iter.Seq2[rows.Row, error]) (all []row, err error) {
	for r, err := range seq {
		if err != nil {
			return all, err
		}
		all = append(all, asRow(r))
	}
	return all, nil
}

// write writes an input of that name and returns where it is.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readFile reads the rows of a file in sequence, and each of them again by itself.
func readFile(path string, columns func([]string) *rows.Problem) (inOrder, again []row, err error) {
	f, err := rows.Open(path, columns)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if inOrder, err = all(f.Rows()); err != nil {
		return inOrder, nil, err
	}
	single, err := f.Reader()
	if err != nil {
		return inOrder, nil, err
	}
	for _, r := range slices.Backward(inOrder) { // in another order
		got, err := single.At(r.Offset, r.Line)
		if err != nil {
			return inOrder, nil, err
		}
		again = append(again, asRow(got))
	}
	slices.Reverse(again)
	return inOrder, again, nil
}

func TestLinesAreWhatStandsOnThem(t *testing.T) {
	suite.FullOnly(t) // reads 128 MiB
	long := strings.Repeat("x", rows.MaxBytes)
	text := "\ufeff{\"a\":1}\r\n\n \t\r\n\ufefftext \n" + long + "\n" + long + "x\nlast"
	at := func(part string) int64 { return int64(strings.Index(text, part)) }
	want := []row{
		{Line: 1, Offset: 3, Text: `{"a":1}`}, // behind the byte order mark
		{Line: 4, Offset: at("\ufefftext"), Text: "\ufefftext "},
		{Line: 5, Offset: at("xx"), Text: long},
		{Line: 6, Offset: at("xx") + int64(len(long)) + 1, Bad: "the item is longer than 64 MiB"},
		{Line: 7, Offset: at("last"), Text: "last"},
	}
	got, again, err := readFile(write(t, "in", text), nil)
	if err != nil {
		t.Fatal(err)
	}
	streamed, err := all(rows.Stream(t.Context(), strings.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]row{"in order": got, "again": again, "as it comes": streamed} {
		if !slices.Equal(got, want) {
			for i := range got {
				got[i].Text = prose.Clip(got[i].Text, 20)
			}
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestTablesByName(t *testing.T) {
	for path, want := range map[string]bool{
		"a.csv": true, "a.TSV": true, "a.csv.gz": true, "a.tsv.GZ": true, "csv": false, "a.jsonl": false, "a.csv.txt": false, "-": false, "a.gz": false,
	} {
		if got := rows.Table(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestAFileIsTheOneThatWasOpened(t *testing.T) {
	path := write(t, "in", "a\nb\n")
	link := path + "-link"
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	f, err := rows.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !f.Is(path) || !f.Is(link) || f.Is(path+"x") || f.Is(filepath.Dir(path)) {
		t.Error("it is mistaken for another, or is none")
	}
	if f.Changed() {
		t.Error("it changed by itself")
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.WriteString(file, "c\n"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil { // clocks of files are coarse
		t.Fatal(err)
	}
	if got, err := all(f.Rows()); err != nil || len(got) != 2 || !f.Changed() {
		t.Errorf("%v, %v, changed: %v", got, err, f.Changed())
	}
}

func TestOnlyARegularFileIsOpened(t *testing.T) {
	dir := t.TempDir()
	if _, err := rows.Open(dir, nil); err == nil || err.Error() != dir+" is not a regular file: name a file, or use - and pipe the data in" {
		t.Error(err)
	}
	if _, err := rows.Open(filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestARowThatIsGoneIsNamed(t *testing.T) {
	for name, text := range map[string]string{"in": "a\nb\nc\n", "in.csv": "h\na\nb\nc\n"} {
		path := write(t, name, text)
		f, err := rows.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.Reader()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, int64(len(text)-2)); err != nil {
			t.Fatal(err)
		}
		_, err = r.At(int64(len(text)-2), 7)
		if gone, ok := errors.AsType[*rows.Error](err); !ok || gone.Line != 7 || gone.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
		f.Close()
	}
}

// TestAReadThatHangsHoldsNobodyUp: nobody writes to standard input, and it stays open.
func TestAReadThatHangsHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		defer w.Close()
		go io.WriteString(w, "one\ntwo\n")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		got, err := all(rows.Stream(ctx, r))
		if len(got) != 2 || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("%v, %v after %v", got, err, time.Since(start))
		}
	})
}

// TestAStreamIsReadNoFurtherThanItIsTaken: a context that never ends leaves no goroutine behind.
func TestAStreamIsReadNoFurtherThanItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		go fmt.Fprintln(w, "one")
		for got, err := range rows.Stream(context.Background(), r) {
			if err != nil || string(got.Bytes) != "one" {
				t.Errorf("%q, %v", got.Bytes, err)
			}
			break
		}
	})
}

func TestWhatAReaderSaysEndsAStream(t *testing.T) {
	gone := errors.New("gone")
	text := strings.Repeat("a\n", 100_000)
	for name, text := range map[string]string{"lines": text, "compressed lines": strings.TrimSuffix(gzipped(t, text), "\x00")} {
		got, err := all(rows.Stream(t.Context(), io.MultiReader(strings.NewReader(text), failing{gone})))
		_, damaged := errors.AsType[*rows.DamagedError](err)
		if !errors.Is(err, gone) || damaged || len(got) == 0 {
			t.Errorf("%s: %d rows, %v", name, len(got), err)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestFieldsOfRows(t *testing.T) {
	type read struct {
		ID     string
		Fields []string
	}
	for text, want := range map[string]read{
		`{"custom_id":"a","prompt":"p","n":1,"n":[2]}`: {"a", []string{`prompt="p"`, "n=[2]"}},
		`{"prompt":"q","custom_id":null}`:              {"3", []string{`prompt="q"`}},
		`{"custom_id":7}`:                              {"7", nil},
		`{"key":"k","request":{}}`:                     {"k", []string{`key="k"`, "request={}"}},
		`{"key":"k","prompt":"x"}`:                     {"3", []string{`key="k"`, `prompt="x"`}},
		`why "so"?`:                                    {"3", []string{`prompt="why \"so\"?"`}},
		`{"broken":`:                                   {"3", nil},
		`{"custom\u005fid":"e\n","prom\u0070t":"z"}`:   {"e\n", []string{`prompt="z"`}},
	} {
		r := rows.NewFieldReader()
		r.Read(rows.Row{Line: work.Line{Number: 2, Bytes: []byte(`{"n":3,"prompt":4}`)}}) // of which nothing stays
		var got read
		id, fields := r.Read(rows.Row{Line: work.Line{Number: 3, Bytes: []byte(text)}})
		got.ID = id
		for _, f := range fields {
			got.Fields = append(got.Fields, fmt.Sprintf("%s=%s", f.Name, f.Value))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", text, d)
		}
	}
	object := rows.Row{Line: work.Line{Number: 1, Bytes: []byte(`{"a":1}`)}, Text: true}
	if id, fields := rows.NewFieldReader().Read(object); id != "1" || len(fields) != 1 || string(fields[0].Value) != `"{\"a\":1}"` {
		t.Errorf("text that begins like an object: %s, %s", id, fields)
	}
	if id, fields := rows.NewFieldReader().Read(rows.Row{Line: work.Line{Number: 5}}); id != "5" || len(fields) > 0 {
		t.Errorf("a row that is too long: %s, %s", id, fields)
	}
}
