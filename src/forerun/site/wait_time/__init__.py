"""When will a job start: a forecast that knows how wrong it has been.

`situation` plays the queue of an instant on, many times. What such draws leave out (jobs kept back for reasons that no log
has, limits, failures) is larger than what they contain, so they are never an answer by themselves: `forecast` adds how far
they were off for the jobs that started last, and the waits of jobs that are `alike`. `backtest` asks at every submission of
a log, in order, and scores the answers.

No answer depends on anything later than its instant.
"""
