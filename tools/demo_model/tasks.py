"""Synthetic documents that reward memory: recall passages and dialogues in the chat format.

A document is a list of (text, weight): the loss weight of its tokens. Values that cannot be
foreseen weigh nothing where they first appear and much where they must be recalled.
"""

import math
import random
import re

import words

USER, NEW, PLAIN, RECALLED = 0.2, 0.0, 1.0, 4.0
END = "<|endoftext|>"


class Document:
    """Text in parts with one loss weight each."""

    def __init__(self):
        self.parts = []

    def add(self, text, weight=PLAIN):
        self.parts.append((text, weight))

    def add_marked(self, text, weight, value_weight):
        """Adds text in which [brackets] mark values with a weight of their own."""
        for i, piece in enumerate(re.split(r"[\[\]]", text)):
            if piece:
                self.add(piece, value_weight if i % 2 else weight)

    def plain_text(self):
        return "".join(text for text, _ in self.parts)


class Fact:
    """Something told once, asked for and answered; values in [brackets]."""

    def __init__(self, tell, ask, answer):
        self.tell, self.ask, self.answer = tell, ask, answer
        self.topic = re.sub(r"\[.*?\]", "", answer)


class Writer:
    """Makes documents from passages ({"source", "title", "text"}) and a random.Random."""

    def __init__(self, passages, rng):
        self.rng = rng
        self.sentences = [
            line for p in passages for line in p["text"].split("\n") if 20 < len(line) < 400
        ]
        self.verses = [
            line
            for p in passages
            if p["source"] == "bible"
            for line in p["text"].split("\n")
            if 20 < len(line) < 240
        ]
        self.definitions = [
            (p["source"], p["title"], p["text"].split("\n")[0])
            for p in passages
            if p["source"] != "bible" and len(p["text"].split("\n")[0]) < 350
        ]
        self.vocabulary = sorted(
            {w for s in self.sentences[::7] for w in re.findall(r"\b[a-z]{3,10}\b", s)}
        )

    # Random values.

    def number(self):
        return "".join(
            self.rng.choice("0123456789") for _ in range(self.rng.choice([2, 3, 4, 4, 4, 4, 5, 6]))
        )

    def made_up(self):
        return "".join(self.rng.choice(words.SYLLABLES) for _ in range(self.rng.randint(2, 4)))

    def key(self):
        kind = self.rng.random()
        if kind < 0.5:
            return self.rng.choice(words.KEYS)
        return self.rng.choice(self.vocabulary) if kind < 0.85 else self.made_up()

    def value(self):
        kind = self.rng.random()
        if kind < 0.6:
            return self.number()
        return (
            self.key()
            if kind < 0.85
            else self.rng.choice(words.NAMES + words.CITIES + words.COLOURS)
        )

    def one_of(self, known):
        """Mostly a word of the list, sometimes a made-up one in the same capitalisation."""
        word = self.rng.choice(known)
        if self.rng.random() < 0.25:
            return (
                self.made_up().capitalize()
                if word[0].isupper()
                else self.rng.choice(self.vocabulary)
            )
        return word

    # Facts.

    def code_fact(self, kind=None):
        kind, key, value = kind or self.rng.choice(words.KINDS), self.key(), self.value()
        the_key = f"the {key}" if self.rng.random() < 0.25 else key
        said = f"he {kind} of {the_key} is"
        tell = [
            f"T{said} [{value}].",
            f"T{said} [{value}].",
            f"Remember: t{said} [{value}].",
            f"Please remember that t{said} [{value}].",
        ]
        ask = [
            f"What is the {kind} of {the_key}?",
            f"What is the {kind} of {the_key}?",
            f"Tell me the {kind} of {the_key}.",
            f"Do you remember the {kind} of {the_key}?",
        ]
        return Fact(self.rng.choice(tell), self.rng.choice(ask), f"T{said} [{value}].")

    def place_fact(self):
        thing, place = self.one_of(words.OBJECTS), self.one_of(words.PLACES)
        return Fact(
            f"I put the {thing} in the [{place}].",
            self.rng.choice([f"Where is the {thing}?", f"Where did I put the {thing}?"]),
            f"The {thing} is in the [{place}].",
        )

    def count_fact(self):
        animals, count = self.one_of(words.ANIMALS), str(self.rng.randint(2, 99))
        return Fact(
            f"I have [{count}] {animals}.",
            f"How many {animals} do I have?",
            f"You have [{count}] {animals}.",
        )

    def meeting_fact(self):
        name, day = self.one_of(words.NAMES), self.rng.choice(words.DAYS)
        return Fact(
            f"I will meet [{name}] on {day}.",
            f"Whom will I meet on {day}?",
            f"You will meet [{name}] on {day}.",
        )

    def personal_facts(self):
        """One fact of each kind about the user, in random order."""
        pick = self.rng.choice
        name, city, food, job = (
            self.one_of(w) for w in (words.NAMES, words.CITIES, words.FOODS, words.JOBS)
        )
        colour, pet, pet_name = (
            self.one_of(words.COLOURS),
            pick(words.PETS),
            self.one_of(words.PET_NAMES),
        )
        age, fav, col = (
            str(self.rng.randint(5, 99)),
            pick(["favourite", "favorite"]),
            pick(["colour", "color"]),
        )
        friend = self.one_of(words.NAMES)
        facts = [
            Fact(
                pick(
                    [
                        f"My name is [{name}].",
                        f"My name is [{name}].",
                        f"I am [{name}].",
                        f"Call me [{name}].",
                    ]
                ),
                pick(
                    [
                        "What is my name?",
                        "What is my name?",
                        "Who am I?",
                        "Do you remember my name?",
                        "What's my name?",
                    ]
                ),
                f"Your name is [{name}].",
            ),
            Fact(
                pick([f"I live in [{city}].", f"My home is in [{city}]."]),
                pick(["Where do I live?", "In which city do I live?"]),
                f"You live in [{city}].",
            ),
            Fact(
                f"My {fav} {col} is [{colour}].",
                f"What is my {fav} {col}?",
                f"Your {fav} {col} is [{colour}].",
            ),
            Fact(
                f"My {fav} food is [{food}].",
                f"What is my {fav} food?",
                f"Your {fav} food is [{food}].",
            ),
            Fact(
                pick([f"I am a [{job}].", f"I work as a [{job}]."]),
                pick(["What is my job?", "What do I work as?"]),
                f"You are a [{job}].",
            ),
            Fact(
                pick(
                    [
                        f"My {pet} is called [{pet_name}].",
                        f"I have a {pet} called [{pet_name}].",
                        f"The name of my {pet} is [{pet_name}].",
                    ]
                ),
                pick([f"What is my {pet} called?", f"What is the name of my {pet}?"]),
                f"Your {pet} is called [{pet_name}].",
            ),
            Fact(f"I am [{age}] years old.", "How old am I?", f"You are [{age}] years old."),
            Fact(
                f"My friend is called [{friend}].",
                pick(["What is my friend called?", "Who is my friend?"]),
                f"Your friend is called [{friend}].",
            ),
        ]
        self.rng.shuffle(facts)
        return facts

    def new_fact(self, known, kind=None):
        """A fact not in `known`; mostly codes, and only codes of `kind` if that is given."""
        others = [] if kind else [self.place_fact, self.count_fact, self.meeting_fact]
        while True:
            fact = self.rng.choice([lambda: self.code_fact(kind)] * 4 + others)()
            if fact.topic not in [other.topic for other in known]:
                return fact

    # Documents.

    def filler(self, characters):
        """Consecutive lines of the corpus, cut at a word near the wanted length."""
        start, lines, size = self.rng.randrange(len(self.sentences)), [], 0
        while size < characters:
            line = self.sentences[(start + len(lines)) % len(self.sentences)]
            lines.append(line)
            size += len(line) + 1
        text = " ".join(lines)
        return text[: max(text.rfind(" ", 0, characters), 0)] if len(text) > characters else text

    def recall(self, characters):
        """Facts, filler of random length, the same facts again, until the length is reached."""
        doc, size, sep = Document(), 0, self.rng.choice([" ", " ", "\n"])
        facts, longest = [], min(1800, 0.6 * characters)
        # In half of the documents all facts are of one kind, so that only the key tells them apart.
        kind = self.rng.choice(words.KINDS) if self.rng.random() < 0.5 else None
        for _ in range(self.rng.randint(1, max(1, min(8, characters // 80)))):
            facts.append(self.new_fact(facts, kind))
        for fact in facts:
            doc.add_marked(fact.tell + sep, USER, NEW)
        while size < characters:
            wanted = (
                int(2 ** self.rng.uniform(3, math.log2(longest))) if self.rng.random() < 0.8 else 0
            )
            if wanted:
                doc.add(self.filler(wanted) + sep)
            for fact in self.rng.sample(facts, min(len(facts), self.rng.randint(1, 3))):
                if self.rng.random() < 0.6:
                    doc.add_marked(fact.answer + sep, PLAIN, RECALLED)
                else:
                    doc.add(f"Question: {fact.ask} Answer:", USER)
                    doc.add_marked(" " + fact.answer + sep, PLAIN, RECALLED)
            if self.rng.random() < 0.3:
                facts.append(self.new_fact(facts, kind))
                doc.add_marked(facts[-1].tell + sep, USER, NEW)
            size = len(doc.plain_text())
        doc.add(END)
        return doc

    def dialogue(self, characters):
        """Turns of telling, asking, small talk and quoting, until the length is reached."""
        talk = Dialogue(self)
        talk.open()
        while talk.size < characters:
            talk.turn()
        talk.doc.add(END)
        return talk.doc


class Dialogue:
    """One conversation in the making: what was said and what may still be told."""

    def __init__(self, writer):
        self.writer, self.rng, self.doc = writer, writer.rng, Document()
        self.known, self.untold = [], writer.personal_facts()
        self.first_message, self.size = None, 0

    def say(self, role, text, weight, value_weight):
        self.doc.add(f"<|im_start|>{role}\n", USER)
        self.doc.add_marked(text, weight, value_weight)
        self.doc.add("<|im_end|>", weight)
        self.doc.add("\n", USER)
        self.size += len(text) + 40

    def user(self, text):
        plain = re.sub(r"[\[\]]", "", text)
        self.first_message = self.first_message or plain
        self.say("user", text, USER, NEW)

    def assistant(self, text):
        self.say("assistant", text, PLAIN, RECALLED)

    def open(self):
        if self.rng.random() < 0.5:
            system = self.rng.choice(
                [
                    "You are a helpful assistant.",
                    "You are Baton, a small assistant.",
                    "Answer briefly.",
                    "You remember what the user tells you.",
                ]
            )
            if self.rng.random() < 0.3:
                fact = self.writer.code_fact()
                self.known.append(fact)
                system += " " + fact.tell
            self.say("system", system, USER, NEW)
        if self.rng.random() < 0.3:
            self.greet()

    def turn(self):
        if self.known and self.rng.random() < 0.45:
            return self.ask()
        action = self.rng.random()
        if action < 0.42:
            self.tell()
        elif action < 0.70:
            self.quote()
        elif action < 0.82:
            self.repeat()
        elif action < 0.86 and self.first_message and len(self.first_message) < 120:
            self.user("What was my first message?")
            self.assistant(f"Your first message was: [{self.first_message}]")
        elif action < 0.90:
            self.ask_unknown()
        else:
            self.small_talk()

    def greet(self):
        hello = self.rng.choice(["Hello!", "Hello", "Hi!", "Hi", "Good morning.", "Hello there."])
        if self.rng.random() < 0.3 and self.untold:
            fact = self.untold.pop()
            self.known.append(fact)
            self.user(f"{hello.rstrip('!.')}! {fact.tell}")
            return self.acknowledge([fact])
        self.user(hello)
        self.assistant("Hello! How can I help you?")

    def tell(self):
        facts = []
        for _ in range(self.rng.choice([1, 1, 1, 2, 2, 3, 4])):
            personal = self.untold and self.rng.random() < 0.5
            facts.append(
                self.untold.pop() if personal else self.writer.new_fact(self.known + facts)
            )
        self.known += facts
        self.user(" ".join(fact.tell for fact in facts))
        self.acknowledge(facts)

    def acknowledge(self, facts):
        if self.rng.random() < 0.5:
            return self.assistant("I will remember that.")
        self.assistant("I will remember that. " + " ".join(fact.answer for fact in facts))

    def ask(self):
        fact = self.rng.choice(self.known)
        self.user(fact.ask)
        self.assistant(fact.answer)

    def ask_unknown(self):
        """A question about something that was never told."""
        fact = (
            self.untold[0] if self.untold and self.rng.random() < 0.5 else self.writer.code_fact()
        )
        self.user(fact.ask)
        self.assistant("You have not told me that.")

    def quote(self):
        """A verse or a definition: text between a fact and its recall."""
        if self.rng.random() < 0.5:
            self.user(
                self.rng.choice(
                    [
                        "Tell me a verse.",
                        "Quote the Bible.",
                        "Read me a verse.",
                        "Tell me something.",
                    ]
                )
            )
            return self.assistant(self.rng.choice(self.writer.verses))
        source, title, text = self.rng.choice(self.writer.definitions)
        book = "the Jargon File" if source == "jargon" else "the Devil's Dictionary"
        self.user(
            self.rng.choice(
                [f"What does {book} say about {title}?", f"Define {title}.", f"What is {title}?"]
            )
        )
        self.assistant(text)

    def repeat(self):
        words_said = " ".join(self.writer.value() for _ in range(self.rng.randint(2, 8)))
        said = (
            words_said if self.rng.random() < 0.5 else self.writer.filler(self.rng.randint(20, 120))
        )
        said = re.sub(r"[\[\]]", "", said)
        self.user(f"Repeat after me: [{said}]")
        self.assistant(f"[{said}]")

    def small_talk(self):
        start = self.rng.randint(1, 40)
        count = ", ".join(str(n) for n in range(start, start + self.rng.randint(3, 8)))
        pairs = [
            (["Thank you.", "Thanks!", "Thank you very much."], "You are welcome."),
            (
                ["Who are you?", "What are you?", "What is your name?"],
                "I am Baton, a small language model.",
            ),
            (["How are you?"], "I am well, thank you."),
            (
                ["What can you do?", "Can you help me?"],
                "I can remember what you tell me. Tell me something and ask me later.",
            ),
            (["Goodbye.", "Bye!"], "Goodbye!"),
            ([f"Count from {start} to {count.split(', ')[-1]}."], count),
        ]
        asked, answer = self.rng.choice(pairs)
        self.user(self.rng.choice(asked))
        self.assistant(answer)
