package sse_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/internal/sse"
)

type event struct{ Name, Data string }

// parse feeds the pieces to a parser.
func parse(pieces ...string) (events []event, err error) {
	var p sse.Parser
	emit := func(e sse.Event) { events = append(events, event{string(e.Name), string(e.Data)}) }
	for _, s := range pieces {
		if err = p.Feed([]byte(s), emit); err != nil {
			return events, err
		}
	}
	return events, p.End(emit)
}

func TestEventsAreCutFromTheStream(t *testing.T) {
	cases := []struct {
		name, stream string
		want         []event
	}{
		{"data", "data: a\n\ndata: b\n\n", []event{{"", "a"}, {"", "b"}}},
		{"names", "event: x\ndata: a\n\ndata: b\n\n", []event{{"x", "a"}, {"", "b"}}},
		{"carriage returns and line feeds", "event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n", []event{{"x", "a"}, {"", "b"}}},
		{"carriage returns alone", "data: a\r\rdata: b\r\r", []event{{"", "a"}, {"", "b"}}},
		{"comments and fields of no use", ": keep-alive\n\nid: 1\nretry: 5\ndata: a\n: x\n\n", []event{{"", "a"}}},
		{"data of several lines", "data: a\ndata:\ndata:  b\n\n", []event{{"", "a\n\n b"}}},
		{"no space", "data:a\n\n", []event{{"", "a"}}},
		{"empty data", "data\n\ndata: \n\n", []event{{"", ""}, {"", ""}}},
		{"the last blank line is missing", "data: a\n\ndata: b\n", []event{{"", "a"}, {"", "b"}}},
		{"the last line break is missing", "data: a\n\ndata: b", []event{{"", "a"}, {"", "b"}}},
		{"a byte order mark", "\xef\xbb\xbfdata: a\n\n", []event{{"", "a"}}},
		{"a name without data", "event: x\n\ndata: a\n\n", []event{{"", "a"}}},
		{"nothing", "", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := parse(c.stream)
			if d := cmp.Diff(c.want, got); d != "" || err != nil {
				t.Error(d, err)
			}
		})
	}
}

func TestEndlessEventIsRefused(t *testing.T) {
	var p sse.Parser
	emit := func(sse.Event) { t.Error("an event") }
	piece := []byte(strings.Repeat("x", 1<<20))
	var err error
	for i := 0; i < 20 && err == nil; i++ {
		err = p.Feed(piece, emit)
	}
	if !errors.Is(err, sse.ErrTooLong) {
		t.Errorf("one line: %v", err)
	}
	if err := p.Feed([]byte("\n\ndata: a\n\n"), emit); !errors.Is(err, sse.ErrTooLong) {
		t.Errorf("afterwards: %v", err)
	}
	p, err = sse.Parser{}, nil
	for i := 0; i < 20 && err == nil; i++ {
		err = p.Feed(append([]byte("data: "), append(piece, '\n')...), emit)
	}
	if !errors.Is(err, sse.ErrTooLong) {
		t.Errorf("many lines: %v", err)
	}
}

func FuzzSSE(f *testing.F) {
	f.Add("event: x\r\ndata: {\"a\":1}\r\n\r\n: c\n\ndata: [DONE]\n\n", uint8(3))
	f.Add("data: a\ndata: b\n\n\rdata", uint8(1))
	f.Add("\xef\xbb\xbfdata: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n", uint8(200))
	f.Add("data: {\"type\":\"content_block_start\",\"index\":-1,\"content_block\":{}}\n\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n", uint8(9))
	f.Fuzz(func(t *testing.T, stream string, split uint8) {
		whole, err := parse(stream)
		if err != nil {
			t.Skip()
		}
		size := max(3, int(split)) // a byte order mark is known only in one piece
		var pieces []string
		for rest := stream; rest != ""; {
			n := min(size, len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
			size = max(1, (size*7)%11)
		}
		parts, err := parse(pieces...)
		if d := cmp.Diff(whole, parts); d != "" || err != nil {
			t.Error(d, err)
		}
	})
}
