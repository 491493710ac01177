package rows_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/suite"
)

func TestATableIsObjects(t *testing.T) {
	text := "\ufeffid, prompt \r\na,\"Say \"\"hi\"\",\r\nplease\"\r\n\r\n1,\"{}\"\nlast,é"
	want := []row{
		{Line: 2, Text: `{"id":"a","prompt":"Say \"hi\",\nplease"}`},
		{Line: 5, Text: `{"id":"1","prompt":"{}"}`},
		{Line: 6, Text: `{"id":"last","prompt":"é"}`},
	}
	tabs := strings.ReplaceAll(strings.ReplaceAll(text, ",", "\t"), "\t\r\nplease", ",\r\nplease")
	for name, path := range map[string]string{"commas": write(t, "in.CSV", text), "tabs": write(t, "in.tsv", tabs)} {
		got, again, err := readFile(path, nil)
		for i := range got { // which is where the last record ends
			got[i].Offset, again[i].Offset = 0, 0
		}
		if d := cmp.Diff(want, got) + cmp.Diff(want, again); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
	}
}

func TestTablesThatAreWrong(t *testing.T) {
	noB := func(names []string) *rows.Problem {
		if slices.Contains(names, "b") {
			return &rows.Problem{Text: "no b is wanted in " + strings.Join(names, " "), Hint: "leave it out"}
		}
		return nil
	}
	for text, want := range map[string]string{
		"":                              " line 1: the table is empty and has no header",
		"\n\n":                          " line 1: the table is empty and has no header",
		"\na,b\n":                       " line 2: no b is wanted in a b",
		"prompt,prompt\na,b\n":          ` line 1: two columns are named "prompt"`,
		"prompt,a\rx,1\ry,2\r":          " line 1: the lines end in carriage returns only",
		",prompt\n1,b\n":                " line 1: column 1 has no name",
		"\nprompt,a\xff\n1,b\n":         " line 2: the name of column 2 is not valid UTF-8",
		"prompt,a\nx,1\ny\"\",2\n":      ` line 3: bare " in non-quoted-field (at column 2)`,
		"prompt,a\nx,1\n\"y\n\n\"z,2\n": ` line 3: extraneous or missing " in quoted-field (at line 5, column 1)`,
		"prompt,a\n\"x,1\ny,2\n":        ` line 2: extraneous or missing " in quoted-field (at line 3, column 5)`,
		"\xff\xfep\x00r\x00":            " line 1: the name of column 1 is not valid UTF-8",
	} {
		path := write(t, "in.csv", text)
		_, _, err := readFile(path, noB)
		wrong, ok := errors.AsType[*rows.Error](err)
		if !ok || !strings.HasPrefix(err.Error(), path+want) || wrong.Hint == "" {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestRowsOfATableThatAreWrong(t *testing.T) {
	text := "prompt,a\nx,1\ny\n\"z\n\n\",1\nu,2,3\nw\xff,1\nlast,2\n"
	got, again, err := readFile(write(t, "in.csv", text), nil)
	if d := cmp.Diff(got, again); d != "" || err != nil {
		t.Errorf("read again: %v\n%s", err, d)
	}
	bad := make(map[int]string)
	for _, r := range got {
		bad[r.Line] = r.Bad
	}
	want := map[int]string{
		2: "", 3: "the row has 1 field, but the header has 2", 4: "", 7: "the row has 3 fields, but the header has 2", 8: "prompt is not valid UTF-8", 9: "",
	}
	if d := cmp.Diff(want, bad); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestAQuoteThatIsNeverClosedEndsWithItsLine(t *testing.T) {
	suite.FullOnly(t) // reads 64 MiB
	path := write(t, "in.csv", "prompt\nfirst\n\"x\n"+strings.Repeat("a,b,c\n", 12<<20))
	got, _, err := readFile(path, nil)
	if want := path + " line 3: the item is longer than 64 MiB: is a quote never closed?"; len(got) != 1 || err == nil || err.Error() != want {
		t.Errorf("%d rows, %v, want %s", len(got), err, want)
	}
}

func TestRecordsMayHave64MiB(t *testing.T) {
	suite.FullOnly(t)                            // reads 128 MiB
	long := strings.Repeat("x", rows.MaxBytes-1) // and the end of the line
	got, again, err := readFile(write(t, "in.csv", "prompt\n"+long+"\n"+long+"x\n"+"last\n"), nil)
	if err != nil || !slices.Equal(got, again) || len(got) != 3 {
		t.Fatalf("%d rows, and %d again, %v", len(got), len(again), err)
	}
	if got[0].Bad != "" || got[1].Bad != "the item is longer than 64 MiB" || got[2].Bad != "" || got[2].Text != `{"prompt":"last"}` {
		t.Errorf("%q, %q, %q %q", got[0].Bad, got[1].Bad, got[2].Bad, got[2].Text)
	}
}

func TestRowsAreReadAgainAsTheyWere(t *testing.T) {
	luck := rand.New(rand.NewPCG(1, 1))
	fields := []string{"a", "", `"x"`, "\"x\n\n\"\"y\"", "é", `"` + strings.Repeat("z\n", 50_000) + `"`}
	ends := []string{"\n", "\r\n", "\n\n", "\r\n\n\r\n"}
	for range suite.Size(12, 60) {
		text, n := "a,b\n", luck.IntN(60)
		for range n {
			text += "f" + "," + fields[luck.IntN(len(fields))] + ends[luck.IntN(len(ends))]
		}
		got, again, err := readFile(write(t, "in.csv", text), nil)
		if diff := cmp.Diff(got, again); err != nil || diff != "" || len(got) != n {
			t.Fatalf("%q read again: %d rows, want %d, %v\n%s", text, len(got), n, err, diff)
		}
	}
}

// FuzzRows: a row that is read again at its place is what it was in sequence. Every record of a table is an object with the
// header's names, of what encoding/csv reads.
func FuzzRows(f *testing.F) {
	for _, seed := range []string{
		"prompt,a\nx,1\n", "\ufeffprompt\r\n\r\n\"a\r\nb\"\r\n\nc", "a,b\n1,2,3\n4\n\"5\n\",6", "x\n\"never\nclosed", "a\tb\n\"1\t\"\t2\n", "{\"prompt\":1}\n\ntext",
	} {
		for format := range 3 {
			f.Add([]byte(seed), uint8(format))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, format uint8) {
		name := [...]string{"in.jsonl", "in.csv", "in.tsv"}[format%3]
		got, again, err := readFile(write(t, name, string(text)), nil)
		if err != nil {
			return
		}
		if diff := cmp.Diff(got, again); diff != "" {
			t.Fatalf("read again:\n%s", diff)
		}
		if !rows.Table(name) {
			return
		}
		r := csv.NewReader(strings.NewReader(strings.TrimPrefix(string(text), "\ufeff")))
		r.FieldsPerRecord = -1
		if name == "in.tsv" {
			r.Comma = '\t'
		}
		records, err := r.ReadAll()
		if err != nil || len(records) != len(got)+1 {
			t.Fatalf("%d rows; encoding/csv: %d, %v", len(got), len(records), err)
		}
		for i, row := range got {
			if row.Bad != "" {
				continue
			}
			var object map[string]string
			if err := json.Unmarshal([]byte(row.Text), &object); err != nil || len(object) != len(records[0]) {
				t.Fatalf("%q: %v", row.Text, err)
			}
			for j, name := range records[0] {
				if object[strings.TrimSpace(name)] != records[i+1][j] {
					t.Fatalf("%q has not %q: %q", row.Text, name, records[i+1][j])
				}
			}
		}
	})
}
