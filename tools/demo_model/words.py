"""Word lists for the synthetic recall tasks and dialogues."""

NAMES = """
Anna Tom Maria Peter Clara Hugo Nina Oscar Ruth Felix Ida Leo Emma Jonas Vera Simon Alice Bruno
Dora Erik Frida Georg Hanna Ivan Julia Karl Laura Martin Nora Otto Paula Quentin Rosa Stefan
Tina Ulrich Viola Walter Yara Zoe Ben Carol David Eve Frank Grace Henry Iris Jack Kate Lucy Mark
Nancy Oliver Pam Robert Sarah Tim Wendy Sam Max Lena Adam Bob
""".split()
CITIES = """
Paris London Berlin Rome Madrid Vienna Oslo Lisbon Athens Dublin Prague Warsaw Helsinki Cairo
Tokyo Delhi Boston Chicago Geneva Milan Naples Lyon Hamburg Munich Porto Seville Krakow Riga
Bergen Turin Bern Leeds York Oxford Lima Quito Kyoto
""".split()
COLOURS = """
red blue green yellow black white brown purple orange pink grey violet crimson scarlet silver
gold turquoise
""".split()
KEYS = """
amber copper silver maple cedar falcon river harbor lantern meadow orchid pepper quartz raven
saffron thunder velvet willow zenith anchor basil candle dragon ember forest garnet hazel indigo
jasper kettle lemon marble nectar ocean pearl ruby sapphire topaz umber violet walnut yarrow
bronze coral desert eagle flint granite hollow island jade lagoon mercury needle olive pine rose
shadow tiger tulip valley winter iron oak moon star sun cloud stone house door garden gate tower
bridge castle market school office
""".split()
PETS = """
dog cat horse parrot rabbit hamster goat turtle pony fish
""".split()
PET_NAMES = """
Rex Bella Rocky Luna Biscuit Shadow Ginger Milo Daisy Pepper Coco Felix Nero Bruno Toby Lucky
Misty Oscar Ruby Simba Smoky Snowy Spot Tiger Whiskey
""".split()
FOODS = """
bread cheese rice soup pasta fish cake apples pears honey eggs beans salad pizza figs grapes
olives potatoes chocolate pancakes
""".split()
JOBS = """
baker teacher doctor farmer painter sailor writer nurse tailor singer miller smith lawyer
gardener cook
""".split()
OBJECTS = """
key book ring coin letter lamp knife cup map hat coat bag box sword bell rope clock candle
ticket umbrella
""".split()
PLACES = """
kitchen garden cellar attic drawer box car barn tower cupboard chest hall office shed basket
temple boat
""".split()
DAYS = """
Monday Tuesday Wednesday Thursday Friday Saturday Sunday
""".split()
ANIMALS = """
cows sheep goats horses hens ducks geese pigs dogs cats bees doves camels
""".split()
KINDS = ["code", "code", "code", "number", "key", "password", "secret number", "value"]
SYLLABLES = """
ba be bo da de do fa fi ga go ka ke ki la le lo ma mi mo na ne no pa po ra re ri ro sa se so ta
te to va vi wa yo za zu
""".split()
