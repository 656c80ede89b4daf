"""What generated requests are written with. All of it is our own text."""

from __future__ import annotations

from random import Random

NAMES = [
    "Amelia",
    "Bruno",
    "Chandra",
    "Dmitri",
    "Esra",
    "Farid",
    "Gwen",
    "Hassan",
    "Ingrid",
    "Jorge",
    "Keiko",
    "Lars",
    "Mina",
    "Nadia",
    "Oleg",
    "Priya",
    "Quentin",
    "Rosa",
    "Samir",
    "Tove",
    "Umberto",
    "Vera",
    "Wei",
    "Ximena",
    "Yusuf",
    "Zofia",
]
PLACES = [
    "the harbour office",
    "the north warehouse",
    "the clinic on Mill Road",
    "the school library",
    "the riverside market",
    "the old bakery",
    "the train depot",
    "the community garden",
    "the glass workshop",
    "the weather station",
    "the ferry terminal",
    "the municipal archive",
]
_THINGS = [
    "a damaged crate of ceramic tiles",
    "the quarterly energy report",
    "a batch of late invoices",
    "the new irrigation pump",
    "three missing rental bicycles",
    "a leaking skylight",
    "the volunteer schedule",
    "the catalogue of historical maps",
    "a shipment of seed potatoes",
    "the replacement radio antenna",
    "a set of torn curtains",
    "the budget for the summer festival",
]
_VERBS = [
    "inspected",
    "reported",
    "catalogued",
    "repaired",
    "postponed",
    "photographed",
    "reviewed",
    "weighed",
    "relabelled",
    "returned",
    "replaced",
    "audited",
]
_TIMES = [
    "early on Monday",
    "shortly before noon",
    "on the second day of the audit",
    "after the storm had passed",
    "during the evening shift",
    "at the end of the month",
    "while the lift was out of order",
    "two hours behind schedule",
    "in front of the visiting engineers",
    "just after the holiday",
]
_REASONS = [
    "because the previous contractor had left no notes",
    "since the sensor kept reporting impossible values",
    "although nobody had asked for it",
    "so that the insurance claim could be filed in time",
    "because the supplier changed the packaging without warning",
    "while the accountant waited for a signed receipt",
    "even though the forecast promised heavy rain",
    "so that the next team would not repeat the mistake",
    "because two of the labels had been swapped",
    "despite a polite objection from the caretaker",
]
_SEQUELS = [
    "The whole task took {n} minutes and cost {m} euros.",
    "Nobody was hurt, but {p} asked for a written explanation.",
    "A second visit is planned for the {n}th, weather permitting.",
    "The log shows {m} separate entries, and at least {n} of them look wrong.",
    "According to {p}, the same thing happened last year and was never documented.",
    "The customer said she was satisfied with the outcome, yet she still wants a refund of {n}"
    " percent.",
    "It remains unclear who will pay for the extra {m} kilometres of transport.",
    "The temperature in the room stayed close to {n} degrees throughout.",
    "In the end {p} suggested a simpler procedure that needs only one signature.",
    "A short summary was pinned to the notice board and sent to {m} people.",
]
TASKS = [
    "Summarise the note above in one sentence.",
    "Classify the tone of the text as positive, negative or neutral and explain your choice.",
    "List every person mentioned in the text.",
    "Rewrite the text as a polite email to the manager.",
    "What should be done next, and by whom?",
    "Extract all the numbers together with what they measure.",
    "Write a short headline for this report.",
    "Explain the main problem to a ten-year-old.",
    "Suggest three follow-up questions that an inspector might ask.",
    "Translate the key facts into a short bullet list.",
]
QUESTIONS = [
    "Why do leaves change colour in autumn?",
    "Give me a tip for learning to play the violin as an adult.",
    "What is the difference between a lake and a pond?",
    "Write a two-line poem about a lighthouse.",
    "How do I remove a coffee stain from a wool carpet?",
    "Name three uses for an empty glass jar.",
    "Explain what a compiler does.",
    "What should I pack for a rainy weekend hike?",
    "How does a heat pump work?",
    "Suggest a name for a small bookshop cafe.",
    "Why is bread dough left to rest?",
    "What makes a good interview question?",
]

HANDBOOK_HEAD = (
    "You are the customer support assistant of Lindqvist Rentals, a company that rents bicycles,"
    " cargo trailers, tents and small boats in four coastal towns. Answer the customer's question"
    " using only the handbook below. Be brief, friendly and concrete; never invent a price or a"
    " date. If the handbook does not answer the question, say so and offer to pass the question"
    " to a human colleague.\n\nHANDBOOK\n"
)
HANDBOOK = (
    "Bicycles are rented by the half day (12 euros), the full day (19 euros) or the week (84"
    " euros). A helmet and a lock are included; child seats cost 4 euros per day.",
    "Cargo trailers may only be attached to bicycles that carry a green sticker. The maximum load"
    " is 60 kilograms, and living animals other than dogs may not be transported.",
    "Tents are available for two, four and six people. They must be returned dry; a tent that is"
    " returned wet costs a drying fee of 15 euros, which is waived when it rained on the day of"
    " return.",
    "Small boats are rented from May until September to customers who are at least 21 years old."
    " Life vests are mandatory and included. Boats may not leave the bay, and they have to be"
    " back one hour before sunset.",
    "A deposit of 50 euros is taken for every bicycle and 200 euros for every boat. The deposit is"
    " released within five working days after the return, provided that nothing is missing or"
    " broken.",
    "Cancellations are free of charge until 48 hours before the start of the rental. After that,"
    " half of the price is due. A cancellation because of an official storm warning is always"
    " free.",
    "In case of a flat tyre the customer should call the workshop, which is open daily from eight"
    " in the morning until seven in the evening. A mechanic will come to any place within 15"
    " kilometres at no charge.",
    "Lost keys cost 25 euros. Lost helmets cost 30 euros. A stolen bicycle must be reported to the"
    " police within 24 hours, otherwise the insurance does not pay and the customer is liable for"
    " its current value.",
    "Groups of ten or more people receive a discount of 12 percent on bicycles and tents, but not"
    " on boats. School classes receive 20 percent. Discounts cannot be combined with vouchers.",
    "The shops in Norrvik and Sandby are open all year; the shops in Klippan and Ostra Hamn are"
    " closed from November until the end of March. Equipment can be returned in a different town"
    " for a fee of 9 euros per item.",
    "Payment is possible by card, bank transfer or voucher, but not in cash. Invoices for"
    " companies are sent at the end of the month and are due within 30 days.",
    "Electric bicycles cost 31 euros per full day. The battery lasts for about 70 kilometres in"
    " flat terrain; a second battery can be rented for 8 euros. Batteries must never be charged"
    " inside a tent or on a boat.",
    "Guided tours by bicycle start in Sandby on Saturdays at ten and last about three hours; they"
    " cost 22 euros per person, and children under twelve ride for free.",
    "Reservations are possible up to six months ahead by telephone or on the web page. A"
    " reservation without payment expires after 72 hours, and the customer gets a message before"
    " that.",
    "Customers may bring their dog into every shop. Feeding the gulls on the terrace is forbidden,"
    " since they have learned to open lunch boxes.",
)
CUSTOMERS = (
    "Hello, this is {p}. We are a group of {n} and would like to rent {x} in {t} for {d} days;"
    " what will that cost us in total, and do we get any discount?",
    "Hi, my name is {p} and I rented {x} in {t} yesterday. I am afraid I lost the key about {n}"
    " kilometres away; what do I have to do and what does it cost?",
    "Good morning, {p} here. Is it possible to return {x} in {t} {d} days late, and can I still"
    " get my deposit back after that? I paid with voucher {v}.",
    "Dear team, I booked {x} for {d} days from {t} under the name {p}, booking {v}. There is a"
    " storm warning now; can I cancel it without paying?",
    "I would like to know whether {x} can be picked up in {t} in the middle of February, because"
    " {p} and I have only {d} days of holiday and a budget of {v} euros.",
)
RENTED = [
    "two electric bicycles",
    "a small boat",
    "a tent for six people",
    "a cargo trailer and a bicycle",
    "three bicycles with child seats",
    "a boat and a tent",
]
TOWNS = ["Norrvik", "Sandby", "Klippan", "Ostra Hamn"]

TEMPLATES = (
    (
        "You sort incident reports for a town's maintenance department. Read the report and answer"
        " with one of the labels BUILDING, VEHICLE, PAPERWORK, GARDEN or OTHER, then a dash, then"
        " the reason in at most ten words. A report about a document is PAPERWORK even if the"
        " document is about a building. Do not repeat the report. Reports that were sorted by"
        " hand:\n"
    ),
    (
        "You turn field notes into records. For the note at the end, write the lines WHO, WHAT,"
        " WHERE and WHEN, each with the words of the note that answer it, and a line OPEN with"
        " whatever the note leaves unanswered. If two people are named, WHO is the one who acted."
        " Never add anything that the note does not say. Earlier notes, so that you know the"
        " style of this office:\n"
    ),
    (
        "You check whether a note would pass our editors. The rules: it names a person, it names a"
        " place, it gives a reason, and it does not blame anybody who is not named. Answer PASS or"
        " FAIL first and then the rule that decided it, in one sentence. Notes that have passed in"
        " the past, the oldest first:\n"
    ),
    (
        "You write the subject line of the letter in which a note is sent to the council. It has"
        " at most eight words, no exclamation marks, and says what happened rather than how"
        " anybody felt about it; people are mentioned by first name only. Notes from the same"
        " folder, which must not be mixed up with the one at the end:\n"
    ),
)


def sentence(random: Random) -> str:
    """Somebody did something somewhere for a reason; sometimes with a sequel."""
    text = (
        f"{random.choice(NAMES)} {random.choice(_VERBS)} {random.choice(_THINGS)} at"
        f" {random.choice(PLACES)} {random.choice(_TIMES)}, {random.choice(_REASONS)}."
    )
    if random.random() < 0.6:
        sequel = random.choice(_SEQUELS)
        numbers = {"n": random.randint(3, 29), "m": random.randint(30, 980)}
        text += " " + sequel.format(**numbers, p=random.choice(NAMES))
    return text
