package rows_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/sluice-llm/sluice/internal/rows"
)

// record is one of a table of Parquet.
type record struct {
	Prompt string    `parquet:"prompt"`
	Big    int64     `parquet:"big"`
	Score  *float64  `parquet:"score,optional"`
	Tags   []string  `parquet:"tags,list"`
	At     time.Time `parquet:"at,timestamp(microsecond)"`
	Day    int32     `parquet:"day,date"`
	Price  int64     `parquet:"price,decimal(2:12)"`
	Turns  []turn    `parquet:"turns,list"`
}

type turn struct {
	Role string `parquet:"role"`
}

// parquetFile writes records into a file of that name.
func parquetFile(t *testing.T, name string, records []record) string {
	t.Helper()
	var b bytes.Buffer
	if err := parquet.Write(&b, records); err != nil {
		t.Fatal(err)
	}
	return write(t, name, b.String())
}

func TestRecordsOfParquetAreRows(t *testing.T) {
	score := 0.5
	records := []record{
		{Prompt: "a \"b\"\nc", Big: 1<<62 + 1, Score: &score, Tags: []string{"x", "y"}, At: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Day: 20000, Price: 1250,
			Turns: []turn{{"user"}}},
		{Prompt: "z", At: time.Unix(0, 0)},
	}
	for range 500 { // more than are read at once
		records = append(records, record{Prompt: "n", At: time.Unix(0, 0)})
	}
	path := parquetFile(t, "in.parquet", records)
	inOrder, again, err := readFile(path, rows.Config{})
	if err != nil || len(inOrder) != len(records) {
		t.Fatalf("%d rows of %d, error %v", len(inOrder), len(records), err)
	}
	if d := cmp.Diff(inOrder, again); d != "" {
		t.Errorf("read again: -want +got\n%s", d)
	}
	want := []string{
		`{"prompt":"a \"b\"\nc","big":4611686018427387905,"score":0.5,"tags":["x","y"],"at":"2026-01-02T03:04:05.000006Z","day":"2024-10-04","price":12.50,"turns":[{"role":"user"}]}`,
		`{"prompt":"z","big":0,"score":null,"tags":[],"at":"1970-01-01T00:00:00Z","day":"1970-01-01","price":0.00,"turns":[]}`,
	}
	if d := cmp.Diff(want, []string{inOrder[0].Text, inOrder[1].Text}); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if inOrder[501].Line != 502 {
		t.Errorf("the last record is %d", inOrder[501].Line)
	}
}

func TestParquetThatCannotBeReadIsRefused(t *testing.T) {
	path := parquetFile(t, "in.parquet", []record{{Prompt: "a", At: time.Unix(0, 0)}})
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what, path string, cfg rows.Config, want string) {
		t.Helper()
		f, err := rows.Open(path, cfg)
		if err == nil {
			f.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", what, err)
		}
	}
	refused("under another name", write(t, "in.jsonl", string(whole)), rows.Config{}, "this is a Parquet file")
	refused("text", write(t, "in.parquet", `{"prompt":"a"}`), rows.Config{}, "is not a whole Parquet file")
	refused("cut short", write(t, "in.parquet", string(whole[:len(whole)/2])), rows.Config{}, "is not a whole Parquet file")
	refused("without a column", path, rows.Config{Columns: func(names []string) *rows.Problem {
		return &rows.Problem{Text: "no column but " + strings.Join(names[:2], ", ")}
	}}, "no column but prompt, big")
	for i := 0; i < len(whole); i += 17 { // whatever byte is damaged, nothing panics
		b := bytes.Clone(whole)
		b[i] ^= 0xff
		if f, err := rows.Open(write(t, "in.parquet", string(b)), rows.Config{}); err == nil {
			f.Close()
		}
	}
	if _, err := all(rows.Stream(context.Background(), bytes.NewReader(whole), rows.Config{Format: rows.FormatParquet})); err == nil || !strings.Contains(err.Error(), "from a file only") {
		t.Errorf("standard input: error %v", err)
	}
}
