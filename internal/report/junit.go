package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// The elements of JUnit's XML, as GitLab and most other systems read it.
type (
	testSuites struct {
		XMLName  xml.Name    `xml:"testsuites"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Suites   []testSuite `xml:"testsuite"`
	}
	testSuite struct {
		Name      string     `xml:"name,attr"`
		Tests     int        `xml:"tests,attr"`
		Failures  int        `xml:"failures,attr"`
		Skipped   int        `xml:"skipped,attr"`
		Time      string     `xml:"time,attr"`
		Timestamp string     `xml:"timestamp,attr"`
		Cases     []testCase `xml:"testcase"`
	}
	testCase struct {
		Class   string       `xml:"classname,attr"`
		Name    string       `xml:"name,attr"`
		Time    string       `xml:"time,attr"`
		Failure *testFailure `xml:"failure"`
		Skipped *testSkipped `xml:"skipped"`
	}
	testFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	testSkipped struct {
		Message string `xml:"message,attr"`
	}
)

// WriteJUnit prints a suite for each stage: a test for the stage and for each of its gates. A run that fails
// outside of its stages has a suite of its own, so that no failed run looks green.
func (r *Report) WriteJUnit(w io.Writer) error {
	all := testSuites{Name: "castle " + r.Kind + " " + r.Cluster, Time: inSeconds(r.Seconds)}
	for _, s := range r.Stages {
		all.add(newSuite(r, s))
	}
	if all.Failures == 0 && r.Result != succeeded {
		run := testSuite{Name: "run", Time: inSeconds(r.Seconds), Timestamp: timestamp(r.Began)}
		run.Cases = []testCase{{Class: r.Cluster, Name: r.Kind, Time: run.Time, Failure: &testFailure{
			Message: printable(firstLine("run "+r.Result, r.Error)), Text: printable(r.Error),
		}}}
		all.add(run)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// add adds a suite and its counts.
func (all *testSuites) add(s testSuite) {
	for _, c := range s.Cases {
		s.Tests++
		switch {
		case c.Failure != nil:
			s.Failures++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
	all.Suites = append(all.Suites, s)
	all.Tests, all.Failures, all.Skipped = all.Tests+s.Tests, all.Failures+s.Failures, all.Skipped+s.Skipped
}

func newSuite(r *Report, s Stage) testSuite {
	name := s.Layer + "/" + s.Name
	suite := testSuite{Name: name, Time: inSeconds(s.Seconds), Timestamp: timestamp(s.Started)}
	stage := testCase{Class: name, Name: "stage " + s.Name, Time: inSeconds(s.Seconds)}
	switch s.Result {
	case "skipped":
		stage.Skipped = &testSkipped{printable(s.Reason)}
	case failed, interrupted, unfinished:
		text := s.Reason
		for _, d := range r.Diagnoses {
			if d.Stage == s.Name {
				text += "\n\n" + d.String()
			}
		}
		stage.Failure = &testFailure{printable(firstLine(s.Result, s.Reason)), printable(text)}
	}
	suite.Cases = append(suite.Cases, stage)
	for _, g := range s.Gates {
		test := testCase{Class: name, Name: "gate " + g.Name, Time: inSeconds(g.Seconds)}
		switch g.Result {
		case failed:
			test.Failure = &testFailure{printable(firstLine("failed", g.Reason)), printable(g.Reason)}
		case "closed": // the wait ended because something else did
			test.Skipped = &testSkipped{printable(firstLine("closed", g.Reason))}
		}
		suite.Cases = append(suite.Cases, test)
	}
	return suite
}

func inSeconds(s float64) string { return fmt.Sprintf("%.3f", s) }

func firstLine(what, text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return strings.TrimSuffix(what+": "+first, ": ")
}

// printable replaces what XML cannot hold.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if c == utf8.RuneError || c < ' ' && c != '\n' && c != '\t' {
			return '�'
		}
		return c
	}, text)
}
