"""Tasks as people type them, with the types that a reader would give them.

Written for the tests: none of them is in what the classifier learned from.
"""

from typing import Final

from goent.domain.tasks import TaskType

Task = tuple[str, TaskType]

PLAIN: Final[tuple[Task, ...]] = (
    # fix
    ("Fix the crash in the parser", "fix"),
    ("Fix a race in the scheduler", "fix"),
    ("The login button does nothing on Safari.", "fix"),
    ("Could you please repair the broken download link?", "fix"),
    ("users get logged out after every deploy", "fix"),
    ("Resolve the memory leak in the image cache", "fix"),
    ("Why not stop the worker from retrying forever? Please fix that.", "fix"),
    ("the total is off by one cent when there are three items", "fix"),
    ("Debug why checkout returns 500 and correct it", "fix"),
    ("There's a bug in date handling: February has 30 days. Fix it.", "fix"),
    # implement
    ("Add a dark mode to the settings page.", "implement"),
    ("I'd like a command that lists all open sessions", "implement"),
    ("Build a REST endpoint for uploading avatars", "implement"),
    ("Can you make the sidebar collapsible?", "implement"),
    ("let users export their data as CSV", "implement"),
    ("Please create a small web server in Go that serves the current directory.", "implement"),
    ("Change the colour of the submit button to green", "implement"),
    ("Support OAuth logins with GitHub", "implement"),
    ("hi, we need pagination on the orders table, thanks", "implement"),
    ("Write a Python script that renames photos by the date they were taken", "implement"),
    # refactor
    ("Rename the variable `usr` to `user` in auth.py", "refactor"),
    ("Split the 900-line controller into smaller classes", "refactor"),
    ("Please get rid of the duplicated code in the two exporters", "refactor"),
    ("Extract the pricing rules into their own module", "refactor"),
    ("simplify this function", "refactor"),
    ("Make the billing code easier to read without changing what it does", "refactor"),
    ("Convert the callbacks in client.js to async/await", "refactor"),
    # documentation
    ("Fix the typo in the README", "documentation"),
    ("Write a getting started guide for new contributors", "documentation"),
    ("Add docstrings to every public function in utils.py", "documentation"),
    ("Could you update the changelog for version 2.3?", "documentation"),
    ("Document the environment variables", "documentation"),
    ("explain the retry policy in docs/retries.md", "documentation"),
    ("The README should mention that Python 3.11 is required", "documentation"),
    # test
    ("Write unit tests for the invoice calculator", "test"),
    ("Cover the timeout branch of the HTTP client with a test", "test"),
    ("Increase the test coverage of the auth package to 90%", "test"),
    ("We need an integration test for the signup flow", "test"),
    ("test the date parser with leap years", "test"),
    ("Please add a regression test for the rounding problem", "test"),
    # format
    ("Format the code with black", "format"),
    ("Sort the imports in all Python files", "format"),
    ("Can you fix the indentation in main.c?", "format"),
    ("Get rid of trailing whitespace", "format"),
    ("Run eslint with autofix on the frontend", "format"),
    # analyze
    ("What is 2+2?", "analyze"),
    ("Say hello.", "analyze"),
    ("How does the cache decide what to evict?", "analyze"),
    ("Find out which query makes the dashboard slow", "analyze"),
    ("Summarize what this project does in three sentences", "analyze"),
    ("list all places where we read the clock", "analyze"),
    ("Compare Redis and Memcached for session storage.", "analyze"),
    ("Good morning!", "analyze"),
    ("where is the database password read", "analyze"),
    # review
    ("Review my last commit", "review"),
    ("Could you take a look at the pull request and tell me what you think?", "review"),
    ("Check src/auth.py for security problems", "review"),
    ("Is there anything wrong with this patch?", "review"),
    ("Audit the payment module", "review"),
    ("Give me feedback on the design of the new API", "review"),
)

SIMPLE: Final[tuple[str, ...]] = (
    "What is 2+2?",
    "Say hello.",
    "Good morning!",
    "hi",
    "Thanks a lot!",
    "What's 17 * 23?",
    "compute 10% of 250",
    "What is the capital of France?",
    "Which Python version do we use?",
    "Where is the main function?",
    "Translate 'good evening' into Spanish.",
    "What does HTTP 418 mean?",
    "Is 97 a prime number?",
    "Fix the typo in the README",
    "There is a spelling mistake in the footer, please correct it.",
    "Correct the spelling of 'recieve' in messages.py",
    "Rename the variable `usr` to `user` in auth.py",
    "rename parameter x to width",
    "Remove the unused import in server.py",
    "Add a comment above the main loop",
    "Change the timeout from 30 to 60 seconds",
    "Change the colour of the submit button to green",
    "Print the current date",
    "Bump the version to 1.2.4",
)
