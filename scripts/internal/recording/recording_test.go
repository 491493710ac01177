package recording_test

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/scripts/internal/recording"
)

func TestScreen(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a block is redrawn":                {"one\r\ntwo\r\n\x1b[A\x1b[A\r\x1b[Jthree\r\n", []string{"three"}},
		"what stands above a block stays":   {"$ run\r\n1/2\r\n\x1b[A\r\x1b[J2/2\r\ndone\r\n", []string{"$ run", "2/2", "done"}},
		"a line is overwritten":             {"abc\rX", []string{"Xbc"}},
		"a line that is too long goes on":   {"123456789abc", []string{"123456789a", "bc"}},
		"more lines than there are scroll":  {"1\r\n2\r\n3\r\n4\r\n5", []string{"2", "3", "4", "5"}},
		"characters of more than one byte":  {"→ ½\r\n", []string{"→ ½"}},
		"it is erased from the cursor on":   {"one\r\ntwo\x1b[A\x1b[J", []string{"one"}},
		"the cursor stays below its top":    {"\x1b[A\x1b[Aone", []string{"one"}},
		"a line end alone keeps the column": {"ab\ncd", []string{"ab", "  cd"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := recording.NewScreen(10, 4)
			if err := s.Write(c.text); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, s.Lines()); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, unknown := range []string{"\x1b[31mred", "\x1b[", "\x07", "\x1b]0;title"} {
		if err := recording.NewScreen(10, 4).Write(unknown); err == nil {
			t.Errorf("%q is no error", unknown)
		}
	}
}

func session() recording.Recording {
	return recording.Recording{Width: 40, Height: 10, Title: "a < b", Parts: []recording.Part{
		{At: 0, Text: "$ sluice run\r\n"},
		{At: 200 * time.Millisecond, Text: "1/2\r\n"},
		{At: 1200 * time.Millisecond, Text: "\x1b[A\r\x1b[J"},
		{At: 1210 * time.Millisecond, Text: "2 of 2 <done> & well\r\n"},
	}}
}

func TestARecordingIsReadAsItWasWritten(t *testing.T) {
	var file bytes.Buffer
	n, err := session().WriteTo(&file)
	if err != nil || n != int64(file.Len()) {
		t.Fatalf("%d of %d bytes: %v", n, file.Len(), err)
	}
	text := file.String()
	got, err := recording.Read(strings.NewReader(text + `[9.5, "i", "typed"]` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(session(), got); diff != "" {
		t.Error(diff)
	}
	for _, broken := range []string{"", "{}\n", `{"version":1,"width":80,"height":24}`, text + "[1]\n[", text + `["x","o",""]`} {
		if _, err := recording.Read(strings.NewReader(broken)); err == nil {
			t.Errorf("%q is no error", broken)
		}
	}
}

// texts are the texts in a picture, whose elements have to be well formed.
func texts(t *testing.T, svg []byte) (all []string) {
	t.Helper()
	in := xml.NewDecoder(bytes.NewReader(svg))
	inText := false
	for {
		token, err := in.Token()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text"
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				all = append(all, string(token))
			}
		}
	}
}

func TestAPictureShowsEachScreenInItsTime(t *testing.T) {
	var svg bytes.Buffer
	if err := session().Draw(&svg); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"$ sluice run", "1/2", "2 of 2 <done> & well"}, texts(t, svg.Bytes())); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{
		"<title>a &lt; b</title>", "prefers-color-scheme:dark", "prefers-reduced-motion:reduce",
		"animation:play 6.2s step-end infinite", // to 1.21 s, and 5 s more
		// The screen that was empty for 10 ms is not shown; the last one stands first, for those who see no motion.
		"0.00%{transform:translateX(-372px)}3.22%{transform:translateX(-744px)}19.48%{transform:translateX(0px)}",
		`<g transform="translate(18 26)"><use href="#l1" y="14"/><use href="#l3" y="34"/></g>`,
	} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("no %s in\n%s", want, svg.String())
		}
	}
	if err := (recording.Recording{Width: 1, Height: 1}).Draw(io.Discard); err == nil {
		t.Error("an empty recording is drawn")
	}
}

// TestThePictureOfTheReadmeIsDrawnFromItsRecording fails when either was changed by hand; go run ./scripts/picture -draw
// draws it again.
func TestThePictureOfTheReadmeIsDrawnFromItsRecording(t *testing.T) {
	pictures := filepath.Join("..", "..", "..", "docs", "pictures")
	file, err := os.Open(filepath.Join(pictures, "run.cast"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rec, err := recording.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	var svg bytes.Buffer
	if err := rec.Draw(&svg); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(filepath.Join(pictures, "run.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, svg.Bytes()) {
		t.Error("docs/pictures/run.svg is not what docs/pictures/run.cast looks like: go run ./scripts/picture -draw")
	}
	all := texts(t, kept)
	for _, want := range []string{"  output     out.jsonl", "$ sluice run --provider sim examples/prompts.jsonl -o out.jsonl"} {
		if !slices.Contains(all, want) {
			t.Errorf("no line %q in the picture", want)
		}
	}
}
