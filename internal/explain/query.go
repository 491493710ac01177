package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/provider"
)

// Query is an error to explain. All fields are optional.
type Query struct {
	Provider provider.Provider // provider that the error comes from (zero: recognized from the error)
	Channel  string            // http, sdk or cli ("": http if Status or Headers are set)
	Status   int               // HTTP status of the response
	Headers  http.Header       // headers of the response
	Text     string            // body of the response, or any other text with the error
	Now      time.Time         // arrival time of the error (zero: the Date header, or the current time)
}

// maxYear is the maximum year of an arrival time: a later reset must be before the year 10000 to be valid in JSON.
const maxYear = 9000

// Read changes q by the fields of a JSON object: text, status, headers, channel, provider and now. It adds headers and ignores unknown
// providers.
func (q *Query) Read(object []byte) error {
	var in struct {
		Status   json.RawMessage `json:"status"`
		Headers  map[string]any  `json:"headers"`
		Channel  string          `json:"channel"`
		Text     *string         `json:"text"`
		Provider string          `json:"provider"`
		Now      string          `json:"now"`
	}
	if err := json.Unmarshal(object, &in); err != nil {
		return wrongType(err)
	}
	if status := strings.Trim(string(in.Status), `"`); status != "" && status != "null" {
		n, err := strconv.Atoi(status)
		if err != nil || n < 0 || n > 999 {
			return errors.New("status is not an HTTP status")
		}
		q.Status = n
	}
	if !slices.Contains([]string{"", "http", "sdk", "cli"}, in.Channel) {
		return fmt.Errorf("channel %q is not http, sdk or cli", in.Channel)
	}
	q.Channel = in.Channel
	if in.Text != nil {
		q.Text = *in.Text
	} else if q.Status == 0 && len(in.Headers) == 0 {
		return errors.New("text is missing")
	}
	if in.Now != "" {
		at, err := time.Parse(time.RFC3339, in.Now)
		if err != nil || at.Year() > maxYear {
			return fmt.Errorf("now %q is not a time such as 2026-03-01T12:00:00Z", in.Now)
		}
		q.Now = at
	}
	if p, ok := provider.Lookup(in.Provider); ok {
		q.Provider = p
	}
	return q.addHeaders(in.Headers)
}

// addHeaders adds headers whose values are texts, numbers or lists of them. It does not change the map that q had.
func (q *Query) addHeaders(from map[string]any) error {
	if q.Headers = q.Headers.Clone(); q.Headers == nil {
		q.Headers = make(http.Header)
	}
	for _, name := range slices.Sorted(maps.Keys(from)) { // sorted, because names that differ only in case are one header
		values, isList := from[name].([]any)
		if !isList {
			values = []any{from[name]}
		}
		for _, v := range values {
			switch v := v.(type) {
			case nil:
			case string:
				q.Headers.Add(name, v)
			case float64:
				q.Headers.Add(name, strconv.FormatFloat(v, 'f', -1, 64))
			default:
				return fmt.Errorf("header %s is neither a text nor a list of texts", strconv.Quote(name))
			}
		}
	}
	return nil
}

// wrongType describes an error of encoding/json without types of Go.
func wrongType(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return errors.New("not valid JSON")
	case wrong.Field == "":
		return fmt.Errorf("a JSON %s instead of an object", wrong.Value)
	}
	return fmt.Errorf("%s has the wrong type: JSON %s", wrong.Field, wrong.Value)
}
