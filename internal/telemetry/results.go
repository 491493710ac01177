package telemetry

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/work"
)

// mostResult is how long a line of results may be: an answer may be much longer than a request, of which a line has at
// most 64 MiB.
const mostResult = 256 << 20

var errNotResult = errors.New(`not a result of sluice run: "custom_id" and "sluice" are required`)

// ReadResults takes in the output of a batch, from which items, their failures, tokens and waits are reported then, in
// place of what events say of them. A last line that is cut off is left out. It fails with the number of a line that is no result.
func (a *Aggregate) ReadResults(r io.Reader) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byFile = true
	lines := work.NewLineReader(r, mostResult)
	var d resultDecoder
	for {
		line, err := lines.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if blank(line.Bytes) {
			continue
		}
		it, err := d.decode(line.Bytes)
		if err != nil && line.Torn {
			a.cut = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line.Number, err)
		}
		a.results.add(it)
	}
}

// ReadEvents takes in a file of events. It fails with the number of a line that is none.
func (a *Aggregate) ReadEvents(r io.Reader) error {
	cut, err := ReadEvents(r, func(e *sluice.Event) error {
		a.Observe(*e)
		return nil
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cut = a.cut || cut
	return err
}

// resultDecoder reads lines of results.
type resultDecoder struct {
	decoder
	it finished
}

// decode reads a line. What it returns is good until the next.
func (d *resultDecoder) decode(line []byte) (*finished, error) {
	d.it = finished{}
	var body, fault []byte
	var id, told bool
	var wrong error
	s := jsonscan.New(line)
	for s.Enter('{'); s.Next('}'); {
		switch string(jsonscan.Name(s.Key())) {
		case "custom_id":
			id = s.Peek() == '"'
			d.it.id = s.Text()
		case "response":
			body = bodyOf(&s)
		case "error":
			fault = s.Span()
		case "sluice":
			told = s.Peek() == '{'
			wrong = d.told(&s, told)
		default:
			s.Skip()
		}
	}
	switch {
	case !s.End() || !id || !told:
		return nil, errNotResult
	case wrong != nil:
		return nil, wrong
	}
	d.it.message = messageOf(fault)
	d.answer(body)
	return &d.it, nil
}

// bodyOf reads a response and returns its body.
func bodyOf(s *jsonscan.Scanner) (body []byte) {
	if s.Peek() != '{' {
		s.Skip()
		return nil
	}
	for s.Enter('{'); s.Next('}'); {
		if string(jsonscan.Name(s.Key())) == "body" {
			body = s.Span()
		} else {
			s.Skip()
		}
	}
	return body
}

// told reads what Sluice says beside a result.
func (d *resultDecoder) told(s *jsonscan.Scanner, object bool) (wrong error) {
	if !object {
		s.Skip()
		return nil
	}
	for s.Enter('{'); s.Next('}'); {
		name := jsonscan.Name(s.Key())
		if err := d.toldField(s, name); err != nil && wrong == nil {
			wrong = fmt.Errorf("sluice.%s: %w", name, err)
		}
	}
	return wrong
}

func (d *resultDecoder) toldField(s *jsonscan.Scanner, name []byte) (err error) {
	it := &d.it
	switch string(name) {
	case "kind":
		return it.kind.UnmarshalText([]byte(d.word(s)))
	case "attempts":
		it.attempts, err = count(s)
	case "throttles":
		it.throttles, err = count(s)
	case "wait_ms":
		it.wait, err = millis(s)
	case "cooldown_ms":
		it.cooldown, err = millis(s)
	case "backoff_ms":
		it.backoff, err = millis(s)
	case "latency_ms":
		it.latency, err = millis(s)
	case "input_tokens":
		it.usage.Input, err = count(s)
	case "output_tokens":
		it.usage.Output, err = count(s)
	case "cached":
		it.reused = s.Truth() || it.reused
	case "cost_usd":
		if s.Peek() == 'n' {
			s.Skip()
			return nil
		}
		it.cost, err = dollars(s)
		it.costed = true
	case "cost_estimated_usd":
		it.estimated, err = dollars(s)
	default:
		s.Skip()
	}
	return err
}

// messageOf is the message of an error that was recorded.
func messageOf(fault []byte) (message string) {
	s := jsonscan.New(fault)
	if s.Peek() != '{' {
		return ""
	}
	for s.Enter('{'); s.Next('}'); {
		if string(jsonscan.Name(s.Key())) == "message" {
			message = s.Text()
		} else {
			s.Skip()
		}
	}
	return message
}

// answer reads of a body which model answered and why it stopped.
func (d *resultDecoder) answer(body []byte) {
	if len(body) == 0 || body[0] != '{' {
		return
	}
	status := ""
	s := jsonscan.New(body)
	for s.Enter('{'); s.Next('}'); {
		switch string(jsonscan.Name(s.Key())) {
		case "model", "modelVersion":
			d.it.model = d.word(&s)
		case "stop_reason":
			d.it.finish = d.word(&s)
		case "status": // of the Responses API
			status = d.word(&s)
		case "incomplete_details": // of the Responses API: why the status is not completed
			d.it.finish = cmp.Or(d.memberWord(&s, "reason"), d.it.finish)
		case "promptFeedback": // of Gemini: why there are no candidates
			d.it.finish = cmp.Or(d.memberWord(&s, "blockReason"), d.it.finish)
		case "choices", "candidates":
			d.it.finish = cmp.Or(d.firstFinish(&s), d.it.finish)
		default:
			s.Skip()
		}
	}
	d.it.finish = cmp.Or(d.it.finish, status)
}

// memberWord reads the word in one member of an object, "" where there is none.
func (d *resultDecoder) memberWord(s *jsonscan.Scanner, name string) (word string) {
	if s.Peek() != '{' {
		s.Skip()
		return ""
	}
	for s.Enter('{'); s.Next('}'); {
		if string(jsonscan.Name(s.Key())) == name {
			word = d.word(s)
		} else {
			s.Skip()
		}
	}
	return word
}

// firstFinish reads why the first of several answers ended.
func (d *resultDecoder) firstFinish(s *jsonscan.Scanner) (finish string) {
	if s.Peek() != '[' {
		s.Skip()
		return ""
	}
	for s.Enter('['); s.Next(']'); {
		if s.Peek() != '{' || finish != "" {
			s.Skip()
			continue
		}
		for s.Enter('{'); s.Next('}'); {
			switch string(jsonscan.Name(s.Key())) {
			case "finish_reason", "finishReason":
				finish = d.word(s)
			default:
				s.Skip()
			}
		}
	}
	return finish
}
